"""The files of encoders that are trained models: where they lie, and what identifies them."""

from __future__ import annotations

import socket
from functools import lru_cache
from pathlib import Path
from typing import Any

from configs.errors import RecipeError
from configs.source_files import read_json
from tasks.storage.artifacts import file_digest
from tasks.storage.file_names import inner_path
from tasks.storage.home_files.source_digests import Files, SourceDigests, files_below, group_digest

_OTHER_FORMS = ("onnx/", "openvino/", "coreml/")
_UNREAD = (".md", ".h5", ".ot", ".msgpack", ".onnx", ".bin", ".pt", ".pickle", ".pkl", ".py")
"""Endings of files that are not loaded: notes, the same weights for other programs, and what may hold code."""


def model_files(folder: Path) -> Files:
    """Return the files of a model that are read, by their names in its folder. Raises RecipeError: no weights."""
    files = [
        (name, path)
        for name, path in files_below(folder, ["."])
        if not name.startswith((".", *_OTHER_FORMS)) and not name.lower().endswith(_UNREAD)
    ]
    if not any(name.endswith(".safetensors") for name, _ in files):
        raise RecipeError(
            f"preprocess.texts: {folder} holds no model: there is no .safetensors file in it (weights in other "
            "forms may hold code, and are not read)"
        )
    _check_modules(folder / "modules.json")
    folders = {str(Path(name).parent) for name, _ in files if name.endswith(".safetensors")}
    for path in sorted(folder.rglob("pytorch_model*.bin")):
        if str(path.parent.relative_to(folder)) not in folders:
            raise RecipeError(f"preprocess.texts: {path} would be read, and may hold code; save it as .safetensors")
    return files


def _check_modules(path: Path) -> None:
    """Refuse modules that lie elsewhere: what is loaded is what was looked at, and what the digest names."""
    said = read_json(path) if path.exists() else []
    for module in said if isinstance(said, list) else []:
        place = isinstance(module, dict) and module.get("path")
        try:
            inner_path(place or "in the folder itself")
        except (TypeError, ValueError):
            raise RecipeError(
                f"preprocess.texts: {path} names a module at {place!r}, which is no path below its folder; copy the "
                "module there"
            ) from None


def model_digest(config: Any, digests: SourceDigests) -> str:
    """Return the digest of the files that an encoder's options name, "" without any. Raises RecipeError."""
    folder = config.model_folder()
    if folder is None:
        return ""
    return str(digests.describe({"texts": model_files(folder)})["texts"]["sha256"])


@lru_cache(maxsize=1)
def check_files(config: Any, expected: str) -> None:
    """Raise RecipeError where this machine's files of an encoder are not those that vectors are named by."""
    folder = config.model_folder()
    here = "" if folder is None else group_digest((name, file_digest(path)) for name, path in model_files(folder))
    if here != expected:
        raise RecipeError(
            f"preprocess.texts: the files of the model {config.model} on {socket.gethostname()} are not those of the "
            "machine that began the run, and some texts would have vectors of another model; copy them there"
        )


def fetched_folder(name: str) -> Path:
    """Return the folder of a model of huggingface.co, downloaded where it is not here. Raises RecipeError."""
    wanted = f"preprocess.texts.model={name} is no folder"
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise RecipeError(f"{wanted}; name one that has the model, or OWNER/NAME of huggingface.co")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise RecipeError(
            f"{wanted}, and huggingface_hub, which would fetch it, is not installed: pip install 'graphmill[text]'"
        ) from None
    ignored = [f"{form}*" for form in _OTHER_FORMS] + [f"*{ending}" for ending in _UNREAD]
    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (OSError, ValueError):  # not here yet
        pass
    try:
        return Path(snapshot_download(name, ignore_patterns=ignored))
    except Exception as error:  # whatever the network says
        said = " ".join(str(error).split())[:300]
        raise RecipeError(f"{wanted}, and cannot be fetched from huggingface.co: {said}") from error
