"""Encoder sentence: a transformer's vector of a text."""

from __future__ import annotations

import math
import multiprocessing
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from configs.errors import RecipeError
from configs.registry import TEXTS
from tasks.arrays import Array
from tasks.preprocess.texts.base import State, TextEncoder

_LETTERS_A_TOKEN = 20
"""More than any tokenizer takes for one: a text's beginning that is longer than all tokens that are read."""


@TEXTS.register("sentence")
class Sentence(TextEncoder):
    """What a model of sentence-transformers makes of a text, of length 1; texts of one length at a time."""

    is_slow = True
    texts_a_job = 1024

    def learn(self, texts: pa.Array) -> State:
        """Return its width."""
        return {"dim": int(self._model.get_embedding_dimension())}

    def encode(self, texts: pa.Array, state: State) -> Array:
        """Return float32 (n, dim)."""
        most = self.config.max_tokens * _LETTERS_A_TOKEN
        words = [self.config.prompt + text[:most] for text in texts.to_pylist()]
        options = {"normalize_embeddings": True, "show_progress_bar": False, "convert_to_tensor": True}
        x: Array = self._model.encode(words, batch_size=self.config.batch_size, **options).float().cpu().numpy()
        return x

    @property
    def in_process(self) -> bool:
        """On a GPU."""
        return self._device != "cpu"

    @cached_property
    def _device(self) -> str:
        if self.config.device != "auto":
            return str(self.config.device)
        import torch

        return "cuda" if torch.cuda.is_available() else "cpu"

    @property
    def _model(self) -> Any:
        return _load(self.config.model_folder(), self._device, self.config.max_tokens, self.config.precision)


@lru_cache(maxsize=1)
def _load(folder: Path, device: str, max_tokens: int, precision: str) -> Any:
    """Return a model, loaded once a process. Raises RecipeError: it cannot be."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise RecipeError(
            "preprocess.texts: sentence needs sentence-transformers, which is not installed: pip install "
            "'graphmill[text]'"
        ) from None
    import torch
    import transformers

    log: Any = transformers.utils.logging  # without types
    log.disable_progress_bar()
    if multiprocessing.parent_process() is not None:  # one of many workers
        torch.set_num_threads(1)
    weights = {"use_safetensors": True, "dtype": getattr(torch, precision)}
    options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True, "model_kwargs": weights}
    try:
        model = SentenceTransformer(str(folder), device=device, **options)
    except Exception as error:  # of a library that has no error of its own
        said = " ".join(str(error).split())[:300]
        raise RecipeError(f"preprocess.texts: the model in {folder} cannot be loaded: {said}") from error
    if model.max_seq_length != math.inf:  # static vectors read all that `encode` leaves
        model.max_seq_length = min(model.max_seq_length or max_tokens, max_tokens)
    return model
