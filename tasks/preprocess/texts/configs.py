"""Options of the encoders of texts, apart from their code: recipes are checked without what they compute with."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from configs.base import ComponentConfig
from configs.registry import TEXTS
from configs.source_files import user_path


class TextEncoderConfig(ComponentConfig):
    """Options that all encoders have."""

    def model_folder(self) -> Path | None:
        """Return the folder of the files that decide an encoder's vectors; None: there are no such files.

        Raises RecipeError: they are not there.
        """
        return None


@TEXTS.options("tfidf", "tfidf")
class TfidfConfig(TextEncoderConfig):
    """Words and pairs of words, weighted by how rare they are (TF-IDF), reduced by an SVD.

    Fitted on the training rows; for any language, and nothing is downloaded. Vectors have length 1.
    """

    gone: ClassVar[dict[str, str]] = dict.fromkeys(("pieces", "seed"), "leave it out; models with it are trained anew")

    dim: int = Field(default=128, ge=1, le=4096)
    """Numbers of a text, or fewer where the training rows say less."""
    terms: int = Field(default=65_536, ge=1, le=2**20)
    """Words, pairs of words and, in scripts without blanks between words (Chinese), pieces of one and of two signs that
    count: those that the most training texts have."""
    rows: int = Field(default=50_000, ge=1, le=10_000_000)
    """Training texts that are learnt from, evenly spaced."""


@TEXTS.options("sentence", "sentence")
class SentenceConfig(TextEncoderConfig):
    """A model of sentence-transformers, a transformer or one of static vectors (needs the extra `text`).

    A text has the same vector, of length 1, in any data: nothing is fitted.
    """

    model: str = Field(min_length=1)
    """Folder of the model, or its name at huggingface.co (`sentence-transformers/all-MiniLM-L6-v2`), whose files are
    downloaded once."""
    max_tokens: int = Field(default=128, ge=2, le=32_768)
    """Tokens of a text that are read, about three quarters of a word each; fewer where the model takes no more."""
    prompt: str = ""
    """What is put before each text, where the model was trained with something (`passage: `)."""
    batch_size: int = Field(default=32, ge=1, le=65_536)
    """Texts at a time, those of one length together."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: several times as fast where the processor multiplies it (AMX), about as good."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: the GPU where there is one."""

    runtime_fields: ClassVar[frozenset[str]] = frozenset({"model", "batch_size", "device"})  # files are the source's

    def model_folder(self) -> Path:
        """Return the model's folder."""
        folder = user_path(self.model)
        if folder.is_dir():
            return folder
        from tasks.preprocess.texts.model_files import fetched_folder

        return fetched_folder(self.model)
