"""Read what torch.save wrote of NumPy arrays and tensors, without ever running anything that a file names.

OGB stores splits as pickles of protocol 4, at times in the format of torch before 1.6. `torch.load(weights_only=True)`
reads neither protocol 4 nor (without a list) NumPy arrays, and without `weights_only` a pickle can run any code. So
this is an unpickler that knows a handful of harmless names and refuses every other one. torch is not needed.
"""

from __future__ import annotations

import _codecs
import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy._core.multiarray import _reconstruct, scalar
from numpy.typing import NDArray

from configs.errors import DataError

Array = NDArray[Any]

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_STORAGES = {
    "DoubleStorage": np.float64,
    "FloatStorage": np.float32,
    "HalfStorage": np.float16,
    "LongStorage": np.int64,
    "IntStorage": np.int32,
    "ShortStorage": np.int16,
    "CharStorage": np.int8,
    "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
}


def _rebuild_tensor(storage: Array, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> Array:
    """Return a tensor's values; what a damaged file says of sizes never reaches beyond the storage."""
    sizes, strides = [int(n) for n in size], [int(n) for n in stride]
    last = offset + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
    if 0 in sizes:
        return np.empty(sizes, storage.dtype)
    if offset < 0 or min([0, *sizes, *strides]) < 0 or last >= len(storage):
        raise pickle.UnpicklingError("a tensor reaches beyond its storage")
    steps = [step * storage.itemsize for step in strides]
    return np.lib.stride_tricks.as_strided(storage[offset:], sizes, steps, writeable=False)


def _no_bytes() -> bytes:
    """Stand for `bytes()`: how protocol 2 writes an empty array's content."""
    return b""


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _codecs.encode,
    ("__builtin__", "bytes"): _no_bytes,
    ("builtins", "bytes"): _no_bytes,
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
}
for _module in ("numpy.core.multiarray", "numpy._core.multiarray"):  # NumPy 1 and 2
    _ALLOWED |= {(_module, "_reconstruct"): _reconstruct, (_module, "scalar"): scalar}
_ALLOWED |= {("torch", name): np.dtype(kind) for name, kind in _STORAGES.items()}


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: IO[bytes], storage: Callable[[str, Any, int], Array]) -> None:
        super().__init__(stream, encoding="latin1")
        self._storage = storage

    def find_class(self, module: str, name: str) -> Any:
        """Return an allowed name; nothing is ever imported."""
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed") from None

    def persistent_load(self, pid: Any) -> Array:
        """Return the storage that a tensor names."""
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage" or not isinstance(pid[1], np.dtype):
            raise pickle.UnpicklingError("an unknown kind of tensor")
        return self._storage(str(pid[2]), pid[1], int(pid[4]))


def load_torch(path: Path) -> Any:
    """Return the dictionary (or array) in a file of torch.save: tensors come as arrays.

    Arrays lie inside of the pickle: takes up to three times the file's size in memory.

    Raises:
        DataError: the file is missing or damaged, or holds anything but arrays, tensors, numbers and texts.
    """
    if not path.is_file():
        raise DataError("there is no such file", path=path)
    try:
        if zipfile.is_zipfile(path):
            return _load_zip(path)
        with path.open("rb") as file:
            return _load_legacy(file)
    except pickle.UnpicklingError as error:
        raise DataError(
            f"holds more than NumPy arrays and tensors, or is damaged ({error}); a pickle could run code, so it is not "
            "opened further",
            path=path,
        ) from error
    except (
        zipfile.BadZipFile,
        EOFError,
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        AttributeError,
        struct.error,
    ) as error:
        raise DataError(f"is damaged ({str(error)[:200]}); fetch it again", path=path) from error


def _load_zip(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        (data,) = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        top = data.removesuffix("data.pkl")
        storages: dict[str, Array] = {}

        def storage(key: str, dtype: Any, count: int) -> Array:
            if key not in storages:
                storages[key] = np.frombuffer(archive.read(f"{top}data/{key}"), dtype, count)
            return storages[key]

        return _Unpickler(io.BytesIO(archive.read(data)), storage).load()


def _load_legacy(file: IO[bytes]) -> Any:
    """Read torch's format before 1.6: magic, version, system, object, keys, then each storage's length and bytes."""
    storages: dict[str, Array] = {}

    def storage(key: str, dtype: Any, count: int) -> Array:
        return storages.setdefault(key, np.empty(count, dtype))

    def load() -> Any:
        return _Unpickler(file, storage).load()

    if load() != _LEGACY_MAGIC:
        raise ValueError("not a file of torch.save")
    load(), load()
    loaded, keys = load(), load()
    for key in keys:
        into = storages[str(key)]
        (count,) = struct.unpack("<q", file.read(8))
        values = np.frombuffer(file.read(count * into.itemsize), into.dtype)
        into[:] = values  # raises ValueError where the length differs
    return loaded
