"""Nested values with arrays, as a JSON text and a file of arrays; nothing is pickled."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import IntegrityError
from tasks.arrays import Array
from tasks.storage.artifacts import write_atomic
from tasks.storage.stored import read_json


def write_values(folder: Path, name: str, value: Any) -> None:
    """Write nested dictionaries, lists, plain values and arrays as `NAME.json` and `NAME.npz`."""
    arrays: dict[str, Array] = {}
    text = json.dumps(_pack(value, arrays), indent=1)
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    write_atomic(folder / f"{name}.npz", content.getvalue())
    write_atomic(folder / f"{name}.json", text.encode())


def read_values(folder: Path, name: str) -> Any:
    """Read what `write_values` wrote. Raises IntegrityError where the files are damaged, FileNotFoundError."""
    values = read_json(folder / f"{name}.json")
    try:
        with (folder / f"{name}.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return _unpack(values, arrays)
    except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise IntegrityError(f"{folder / name}.json and .npz are damaged: {error}") from error


def _pack(value: Any, arrays: dict[str, Array]) -> Any:
    if isinstance(value, dict):
        return {str(key): _pack(inner, arrays) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_pack(inner, arrays) for inner in value]
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "U":  # as an array each text would take as much as the longest
            return {"$texts": value.tolist()}
        assert value.dtype.kind in "biuf", value.dtype
        arrays[f"a{len(arrays)}"] = value
        return {"$array": f"a{len(arrays) - 1}"}
    return value.item() if isinstance(value, np.generic) else value


def _unpack(value: Any, arrays: Any) -> Any:
    if isinstance(value, list):
        return [_unpack(inner, arrays) for inner in value]
    if not isinstance(value, dict):
        return value
    if "$array" in value:
        return arrays[value["$array"]]
    if "$texts" in value:
        return np.array(value["$texts"], np.str_)
    return {key: _unpack(inner, arrays) for key, inner in value.items()}
