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

from configs.errors import CheckpointError
from models.kernels.tables.row_tables import RowTable
from tasks.storage.file_names import file_name

Key = tuple[str, int]
"""A block: the name of its table, and its number."""


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
        """Fill a table. Raises CheckpointError: the file is not there, or not as it was written."""
        path, arrays = self._path(key, version), list(table.arrays().values())
        num_bytes, size = sum(array.nbytes for array in arrays), path.stat().st_size if path.exists() else 0
        if size != num_bytes:
            raise CheckpointError(
                f"{path} has {size:,} bytes instead of {num_bytes:,}: it was cut off after the checkpoint was written"
            )
        with FileIO(path) as file:
            for array in arrays:
                rest = memoryview(array.data).cast("B")
                while rest:
                    rest = rest[file.readinto(rest) :]
        if _checksum(table) != checksum:
            raise CheckpointError(f"{path} was changed after it was written")

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
        for path in list(self.folder.iterdir()) if self.folder.exists() else []:
            if path not in kept:
                path.unlink(missing_ok=True)

    def _path(self, key: Key, version: int) -> Path:
        name, block = key
        return self.folder / file_name(f"{name}.{block}.{version}")


def _checksum(table: RowTable) -> int:
    checksum = 0
    for array in table.arrays().values():
        checksum = isal_zlib.crc32(memoryview(array.data).cast("B"), checksum)
    return checksum
