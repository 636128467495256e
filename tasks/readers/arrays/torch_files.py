"""Read what torch.save wrote of NumPy arrays and tensors, without ever running anything that a file names.

OGB stores splits as pickles of protocol 4, at times in the format of torch before 1.6. `torch.load(weights_only=True)`
reads neither protocol 4 nor (without a list) NumPy arrays, and without `weights_only` a pickle can run any code. So
this is an unpickler that knows a handful of harmless names and refuses every other one. torch is not needed.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import re
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, TypeAlias, cast

import numpy as np

from configs.errors import DataError
from configs.source_files import check_file, open_file
from tasks.arrays import Array
from tasks.readers.limits import check_memory

_MOST_EMPTY_ROWS = 1 << 20
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


class _Dtype:
    """Stands for `numpy.dtype`: plain numbers only."""

    def __init__(self, name: str, *_: Any) -> None:
        if not re.fullmatch(r"[<>|=]?[biuf][0-9]{1,2}", name):
            raise pickle.UnpicklingError(f"the type {name[:40]!r} is not allowed")
        self.value = np.dtype(name)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.value = self.value.newbyteorder(state[1])


class _Array:
    """Stands for `numpy.ndarray`: made from bytes that are there, of the size that its shape says."""

    value: Array

    def __init__(self, *_: Any) -> None:
        """As NumPy does: empty at first."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, data = state
        raw = data.encode("latin1") if isinstance(data, str) else data
        self.value = np.frombuffer(raw, kind.value).reshape(shape, order="F" if fortran else "C")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.value, dtype)


def _scalar(kind: _Dtype, data: bytes | str) -> Any:
    return np.frombuffer(data.encode("latin1") if isinstance(data, str) else data, kind.value)[0]


def _encode(text: str, encoding: str) -> bytes:
    """Stand for `codecs.encode`: how protocol 2 writes bytes."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"the encoding {encoding[:40]!r} is not allowed")
    return text.encode("latin1")


def _rebuild_tensor(storage: Array, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> Array:
    """Return a tensor's values; what a damaged file says of sizes never reaches beyond the storage."""
    sizes, strides = [int(n) for n in size], [int(n) for n in stride]
    last = offset + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
    if 0 in sizes:
        rows = math.prod(n for n in sizes if n)  # a shape without values says anything, such as 10^15 empty rows
        return np.empty(sizes if rows <= max(len(storage), _MOST_EMPTY_ROWS) else 0, storage.dtype)
    if offset < 0 or min([0, *sizes, *strides]) < 0 or last >= len(storage):
        raise pickle.UnpicklingError("a tensor reaches beyond its storage")
    if math.prod(sizes) > len(storage):
        raise pickle.UnpicklingError("a tensor has more values than its storage")
    steps = [step * storage.itemsize for step in strides]
    return np.lib.stride_tricks.as_strided(storage[offset:], sizes, steps, writeable=False)


def _no_bytes() -> bytes:
    """Stand for `bytes()`: how protocol 2 writes an empty array's content."""
    return b""


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): "numpy.ndarray",  # only ever an argument of `_reconstruct`
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _no_bytes,
    ("builtins", "bytes"): _no_bytes,
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
}
for _module in ("numpy.core.multiarray", "numpy._core.multiarray"):  # NumPy 1 and 2
    _ALLOWED |= {(_module, "_reconstruct"): _Array, (_module, "scalar"): _scalar}
_ALLOWED |= {("torch", name): np.dtype(kind) for name, kind in _STORAGES.items()}


StandIns: TypeAlias = Mapping[tuple[str, str], Any]
"""What stands for further names, by module and name."""


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: IO[bytes], storage: Callable[[str, Any, int], Array], stand_ins: StandIns) -> None:
        super().__init__(stream, encoding="latin1")
        self._storage, self._stand_ins = storage, stand_ins

    def find_class(self, module: str, name: str) -> Any:
        """Return an allowed name; nothing is ever imported."""
        try:
            return _ALLOWED[module, name] if (module, name) in _ALLOWED else self._stand_ins[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed") from None

    def persistent_load(self, pid: Any) -> Array:
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage" or not isinstance(pid[1], np.dtype):
            raise pickle.UnpicklingError("an unknown kind of tensor")
        return self._storage(str(pid[2]), pid[1], int(pid[4]))


def load_torch(path: Path, stand_ins: StandIns = MappingProxyType({})) -> Any:
    """Return the dictionary (or array) in a file of torch.save: tensors come as arrays.

    `stand_ins` are harmless classes for names beyond arrays and tensors. Arrays lie inside of the pickle: takes up to
    three times the file's size in memory.

    Raises DataError: the file is missing or damaged, or holds anything but arrays, tensors, numbers and texts.
    """
    size = check_file(path).st_size
    check_memory(3 * size, "the file", path)
    try:
        with io.BufferedReader(cast(io.RawIOBase, open_file(path))) as file:
            loaded = _load_zip(file, size, stand_ins) if zipfile.is_zipfile(file) else _load_legacy(file, stand_ins)
    except DataError:
        raise
    except pickle.UnpicklingError as error:
        raise DataError(
            f"holds more than NumPy arrays and tensors, or is damaged ({error}); a pickle could run code, so it is not "
            "opened further",
            path=path,
        ) from error
    except Exception as error:  # a damaged pickle can call anything allowed with anything
        raise DataError(f"is damaged ({str(error)[:200]}); fetch it again", path=path) from error
    return {key: _value(value) for key, value in loaded.items()} if isinstance(loaded, dict) else _value(loaded)


def _value(loaded: Any) -> Any:
    return loaded.value if isinstance(loaded, _Array) else loaded


def _checked(data: IO[bytes], size: int) -> IO[bytes]:
    """Return the stream where it was, after a look at the pickle there: a few bytes can ask for any memory.

    The unpickler makes room for as many remembered objects as the largest number given to one says, and for texts as
    long as they say.
    """
    start = data.tell()
    for opcode, argument, _ in pickletools.genops(data):  # raises ValueError where a text is not there
        if "PUT" in opcode.name and argument is not None and int(argument) > size:
            raise pickle.UnpicklingError("an impossible count of objects")
    data.seek(start)
    return data


def _load_zip(file: IO[bytes], size: int, stand_ins: StandIns) -> Any:
    file.seek(0)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise pickle.UnpicklingError("its members are compressed, as torch.save never writes them")
        if sum(member.file_size for member in members) > size:
            raise pickle.UnpicklingError("its members are larger than the file")
        (data,) = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        top = data.removesuffix("data.pkl")
        storages: dict[str, Array] = {}

        def storage(key: str, dtype: Any, count: int) -> Array:
            if key not in storages:
                storages[key] = np.frombuffer(archive.read(f"{top}data/{key}"), dtype, count)
            return storages[key]

        return _Unpickler(_checked(io.BytesIO(archive.read(data)), size), storage, stand_ins).load()


def _load_legacy(stream: IO[bytes], stand_ins: StandIns) -> Any:
    """Read torch's format before 1.6: magic, version, system, object, keys, then each storage's length and bytes."""
    stream.seek(0)
    content = stream.read()
    file = io.BytesIO(content)
    storages: dict[str, Array] = {}

    def storage(key: str, dtype: Any, count: int) -> Array:
        if key not in storages:
            if not 0 <= count * dtype.itemsize <= len(content):
                raise pickle.UnpicklingError("a tensor is larger than the file")
            storages[key] = np.empty(count, dtype)
        return storages[key]

    def load() -> Any:
        return _Unpickler(_checked(file, len(content)), storage, stand_ins).load()

    if load() != _LEGACY_MAGIC:
        raise ValueError("not a file of torch.save")
    load(), load()
    loaded, keys = load(), load()
    for key in keys:
        into = storages[str(key)]
        (count,) = struct.unpack("<q", file.read(8))
        if count != len(into):
            raise ValueError("a tensor's length differs from what was said of it")
        into[:] = np.frombuffer(file.read(count * into.itemsize), into.dtype)
    return loaded
