"""Blocks of tables as files: what a checkpoint holds, and what has no room in memory.

A file is written once and never changed. Its name has a version, the pool after which the block is as it says, so that
the files of the last checkpoint stay as they are while the training goes on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from io import FileIO
from pathlib import Path

from isal import isal_zlib

from configs.errors import IntegrityError
from models.kernels.tables.row_tables import RowTable
from tasks.arrays import Array
from tasks.storage.file_names import file_name

Key = tuple[str, int]
"""A block: the name of its table, and its number."""
_CHECKED_BYTES = 1 << 22
"""Of a file that is checked, in memory at a time."""


class BlockFiles:
    """A folder of blocks; ranks share it, and no two write the same block at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._unsynced: set[Path] = set()

    def write(self, key: Key, version: int, table: RowTable) -> int:
        """Write a block and return its checksum; `sync` brings it to the disk."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(key, version)
        with path.open("wb") as file:
            for array in table.arrays().values():
                file.write(memoryview(array.data).cast("B"))
        self._unsynced.add(path)
        return _checksum(table)

    def read(self, key: Key, version: int, table: RowTable, checksum: int) -> None:
        """Fill a table. Raises IntegrityError: the file is not there, or not as it was written."""
        num_bytes = sum(array.nbytes for array in table.arrays().values())
        with self._open(key, version, num_bytes) as file:
            for array in table.arrays().values():
                _fill(array, file)
        if _checksum(table) != checksum:
            raise self._changed(key, version)

    def check(self, key: Key, version: int, num_bytes: int, checksum: int) -> None:
        """Read a block's file once, a little at a time. Raises IntegrityError: as `read`.

        `num_bytes`: bytes of the whole block.
        """
        crc32, part = 0, bytearray(min(num_bytes, _CHECKED_BYTES))
        with self._open(key, version, num_bytes) as file:
            while count := file.readinto(part):
                crc32 = isal_zlib.crc32(memoryview(part)[:count], crc32)
        if crc32 != checksum:
            raise self._changed(key, version)

    def read_rows(self, key: Key, version: int, table: RowTable, first: int, num_bytes: int) -> None:
        """Fill the values of a smaller table with a block's rows from `first` on; `check` the file before.

        Raises IntegrityError: the file is not there, or not as long as it was.

        `num_bytes`: bytes of the whole block.
        """
        with self._open(key, version, num_bytes) as file:
            file.seek(first * table.stride * table.values.itemsize)
            _fill(table.values[: table.num_rows * table.stride], file)

    def sync(self) -> None:
        """Return when all that was written is on the disk."""
        for path in [*self._unsynced, self.folder]:
            if path.exists():
                opened = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(opened)
                finally:
                    os.close(opened)
        self._unsynced.clear()

    def remove(self, key: Key, version: int) -> None:
        """Remove a block's file, if there is one."""
        self._path(key, version).unlink(missing_ok=True)

    def keep_only(self, versions: Iterable[tuple[Key, int]]) -> None:
        """Remove all files but those of these blocks and versions."""
        kept = {self._path(*item) for item in versions}
        for path in self._files():
            if path not in kept:
                path.unlink(missing_ok=True)

    def _open(self, key: Key, version: int, num_bytes: int) -> FileIO:
        path = self._path(key, version)
        size = path.stat().st_size if path.exists() else 0
        if size != num_bytes:
            raise IntegrityError(
                f"{path} has {size:,} bytes instead of {num_bytes:,}: it was cut off after the checkpoint was written; "
                f"remove {self.folder.parent} to train anew"
            )
        return FileIO(path)

    def _changed(self, key: Key, version: int) -> IntegrityError:
        return IntegrityError(
            f"{self._path(key, version)} was changed after it was written; remove {self.folder.parent} to train anew"
        )

    def _files(self) -> Iterable[Path]:
        return list(self.folder.iterdir()) if self.folder.exists() else []

    def _path(self, key: Key, version: int) -> Path:
        name, block = key
        return self.folder / file_name(f"{name}.{block}.{version}")


def _checksum(table: RowTable) -> int:
    checksum = 0
    for array in table.arrays().values():
        checksum = isal_zlib.crc32(memoryview(array.data).cast("B"), checksum)
    return checksum


def _fill(array: Array, file: FileIO) -> None:
    rest = memoryview(array.data).cast("B")
    while rest:
        rest = rest[file.readinto(rest) :]
