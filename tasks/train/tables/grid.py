"""Tables cut into blocks of rows, of which each rank has some: node v is row v // n of block v % n.

So every block has the same number of nodes, give or take one, with all kinds of degrees among them, whatever order the
nodes stand in; and no table says where a node is.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

from isal import isal_zlib

from configs.errors import CheckpointError
from models.kernels.tables.row_layout import Precision, UpdateRule
from models.kernels.tables.row_tables import RowTable
from models.vectors.base import Meeting, SampledModel
from models.vectors.configs import Pairing
from tasks.arrays import Array, blocks
from tasks.storage.file_names import file_name
from tasks.train.ranks.collectives import from_all, move
from tasks.train.strategies.base import Ranks
from tasks.train.tables.settings import TableSizes

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


Start = Callable[[Key, RowTable], None]
_VECTOR_BYTES = 1 << 26
"""Of vectors that are made at a time."""


def block_rows(num_nodes: int, num_blocks: int, block: int) -> int:
    """Return how many nodes a block holds."""
    return (num_nodes - block + num_blocks - 1) // num_blocks


@dataclass(frozen=True)
class TableSpec:
    """All that says what the tables of a training are, before anything is learnt."""

    pairings: list[Pairing]
    num_nodes: int
    num_blocks: int
    precision: Precision
    rule: UpdateRule
    seed: int

    def names(self, pairing: Pairing) -> tuple[str, str]:
        """Return the names of a pairing's tables, of centres and of contexts: the same where they are one."""
        centres = f"{pairing.name}.centres"
        return centres, centres if pairing.shared else f"{pairing.name}.contexts"

    def widths(self) -> dict[str, int]:
        """Return the width of each table, by name."""
        return {name: pairing.width for pairing in self.pairings for name in self.names(pairing)}

    def empty(self, key: Key) -> RowTable:
        """Return a block of zeros."""
        name, block = key
        return RowTable.zeros(self.rows(block), self.widths()[name], self.precision, self.rule)

    def rows(self, block: int) -> int:
        """Return how many rows a block has."""
        return block_rows(self.num_nodes, self.num_blocks, block)

    @property
    def num_bytes(self) -> int:
        """Bytes of all blocks."""
        return TableSizes.of(self.pairings, self.num_nodes, self.precision, self.rule).all_tables

    @property
    def numbers(self) -> int:
        """Numbers that are learnt."""
        return self.num_nodes * sum(self.widths().values())


def first_rows(tables: TableSpec, key: Key, table: RowTable) -> None:
    """Fill a block as it begins: rows of centres are drawn as word2vec's, rows of contexts are 0."""
    for number, pairing in enumerate(tables.pairings):
        if key[0] == tables.names(pairing)[0]:
            table.set_uniform(tables.seed + number * tables.num_blocks + key[1])


Saved = dict[str, tuple[int, int]]
"""A checkpoint's files: the version and the checksum of each block."""


class Grid:
    """The blocks that this rank has: as many in memory as there is room for, the others in files."""

    def __init__(
        self, tables: TableSpec, ranks: Ranks, files: BlockFiles, room: int | None = None, start: Start | None = None
    ) -> None:
        """Hold nothing yet. `room`: blocks that may lie in memory at a time, None: all; the others lie in `files`.

        `start` fills a block as it begins; None: `first_rows`.
        """
        self.tables, self.ranks, self.files, self.room = tables, ranks, files, room
        self._start = start or partial(first_rows, tables)
        self.version = 0
        """What blocks are written as: the number of pools that are trained, the one that is being trained included."""
        self._loaded: dict[Key, RowTable] = {}  # in the order of their last use
        self._files: dict[Key, tuple[int, int]] = {}
        """Version and checksum of the blocks that a file holds as they are now."""
        self._saved: dict[Key, tuple[int, int]] = {}
        """Those of the last checkpoint's files, all ranks' together."""
        self._kept: set[tuple[Key, int]] = set()
        """Blocks and versions of further files that stay."""
        self._holders: dict[Key, int] = {}
        self.take_back: Callable[[Key], None] = lambda key: None
        """Called with a loaded block before its rows are read: who has newer ones, on a device, writes them there."""

    def keys(self, row: int, column: int) -> list[Key]:
        """Return the blocks that pairs of a centre in block `row` and a context in block `column` meet in."""
        return list(dict.fromkeys(itertools.chain(*self.key_pairs(row, column).values())))

    def key_pairs(self, row: int, column: int) -> dict[str, tuple[Key, Key]]:
        """Return the blocks of `keys` by pairing, of centres and of contexts."""
        names = {pairing.name: self.tables.names(pairing) for pairing in self.tables.pairings}
        return {name: ((centres, row), (contexts, column)) for name, (centres, contexts) in names.items()}

    def first(self, key: Key) -> RowTable:
        """Return a block as it begins."""
        table = self.tables.empty(key)
        self._start(key, table)
        return table

    def block(self, key: Key) -> RowTable:
        """Return a loaded block."""
        return self._loaded[key]

    def meeting(self, row: int, column: int) -> Meeting:
        """Return the loaded blocks of `key_pairs`."""
        pairs = self.key_pairs(row, column)
        return {name: (self.block(centres), self.block(contexts)) for name, (centres, contexts) in pairs.items()}

    def bring(self, owners: Mapping[Key, int]) -> None:
        """Move blocks to the ranks that want them; all ranks call this together, with the same blocks in one order."""
        for key, rank in owners.items():
            holder = self._holders.get(key, rank)
            self._holders[key] = rank
            if holder == rank:
                continue
            if self.ranks.rank == holder:
                self.load([key])
                move(_arrays(self._loaded.pop(key)), holder, rank)
                self._forget_file(key)
            elif self.ranks.rank == rank:
                self._make_room([key])
                self._files.pop(key, None)
                table = self._loaded[key] = self.tables.empty(key)
                move(_arrays(table), holder, rank)

    def load(self, keys: Iterable[Key], *, to_change: bool = False) -> None:
        """Have blocks in memory, all of them at a time; others leave it where there is no room.

        `to_change`: rows will be changed, here or on a device; else they are those of now, to be read.
        """
        to_load = list(dict.fromkeys(keys))
        self._make_room(to_load)
        for key in to_load:
            table = self._loaded.pop(key, None)
            if table is None and key in self._files:
                table = self._saved_block(key, *self._files[key])
            self._loaded[key] = table if table is not None else self.first(key)
            if to_change:
                self._forget_file(key)
            else:
                self.take_back(key)

    def save(self) -> Saved:
        """Write what no file holds as it is; return what each block's file is, of all ranks, for `restore`."""
        for key in self._loaded:
            self._write(key)
        self.files.sync()
        own = {f"{key[0]}.{key[1]}": file for key, file in self._files.items()}
        saved: Saved = {}
        for rank, files in enumerate(from_all(own)):
            for text, file in files.items():
                if self._holders.get(_key(text), rank) == rank:
                    saved[text] = file
        return saved

    def saved(self, files: Saved, others: Saved | None = None) -> None:
        """Remove all files but those of a checkpoint that is written, and `others`; rank 0 calls this for all."""
        self._saved = {_key(text): (version, checksum) for text, (version, checksum) in files.items()}
        self._kept = {(_key(text), version) for text, (version, _) in (others or {}).items()}
        if self.ranks.is_main:
            self.files.keep_only([*((key, version) for key, (version, _) in self._saved.items()), *self._kept])

    def restore(self, files: Saved, others: Saved | None = None) -> None:
        """Go on from the files of a checkpoint, and keep `others`: any rank reads any block's."""
        self.saved(files, others)
        self._files = dict(self._saved)

    def saved_block(self, key: Key, files: Saved) -> RowTable:
        """Return a block as a checkpoint has it, beside the one of now."""
        return self._saved_block(key, *files[f"{key[0]}.{key[1]}"])

    def vectors(self, model: type[SampledModel], config: Any, out: Array) -> None:
        """Write what the model makes of each node's rows into float32 (N, dim), from the last checkpoint's files.

        Block by block, for either may have no room in memory; the blocks leave it. Raises IntegrityError.
        """
        self._loaded.clear()
        num_blocks = self.tables.num_blocks
        for block in range(num_blocks):
            own = out[block::num_blocks]
            tables = {key: self._saved_block(key, *self._saved[key]) for key in self.keys(block, block)}
            pairs = self.key_pairs(block, block)
            for part in blocks(len(own), max(1, _VECTOR_BYTES // (4 * config.dim))):
                rows = {name: (tables[a].read(part), tables[b].read(part)) for name, (a, b) in pairs.items()}
                own[part] = model.vectors(config, rows)

    def _saved_block(self, key: Key, version: int, checksum: int) -> RowTable:
        table = self.tables.empty(key)
        self.files.read(key, version, table, checksum)
        return table

    def _make_room(self, to_load: list[Key]) -> None:
        if self.room is None:
            return
        more = sum(key not in self._loaded for key in to_load)
        for key in [key for key in self._loaded if key not in to_load]:
            if len(self._loaded) + more <= self.room:
                return
            self._write(key)
            del self._loaded[key]

    def _write(self, key: Key) -> None:
        if key not in self._files:
            self.take_back(key)
            self._files[key] = self.version, self.files.write(key, self.version, self._loaded[key])

    def _forget_file(self, key: Key) -> None:
        version, _ = self._files.pop(key, (None, 0))
        is_saved = version == self._saved.get(key, (None, 0))[0]
        if version is not None and not is_saved and (key, version) not in self._kept:
            self.files.remove(key, version)


def _key(text: str) -> Key:
    name, _, block = text.rpartition(".")
    return name, int(block)


def _arrays(table: RowTable) -> list[Array]:
    return list(table.arrays().values())
