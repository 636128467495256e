"""Checkpoints of tables whose rows lie on several ranks: each writes its own into one file a table.

The files of a checkpoint stand in a folder of their own, `NAME-NUMBER.tables`, beside `NAME.pt`, which is written last
and says which folder is its own: a crash leaves the old checkpoint or the new one, whole. A file is an `.npy` of the
whole table; on machines without a shared home it has holes where other machines' rows are. Whoever goes on from it
reads its own rows, however many ranks there are now.
"""

from __future__ import annotations

import math
import os
import shutil
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from configs.errors import IntegrityError
from tasks.inference.layerwise import scratch_array
from tasks.sampling.parts.ranges import Ranges
from tasks.storage.file_names import file_name
from tasks.storage.graph_store import open_rows, slices
from tasks.storage.manifests import ArrayEntry
from tasks.train.ranks.collectives import from_all, from_main, wait_for_all

_CHUNK_ROWS = 1 << 16


def write_shards(work: Path, name: str, tables: dict[str, Tensor], ranges: Ranges, *, writes: bool) -> dict[str, Any]:
    """Write this rank's rows of tables, float32 (own rows, ...) by name, into a folder in `work`; all ranks together.

    `name`: of the checkpoint; `writes`: whether this rank makes the files, as one rank of each home does. Returns what
    `NAME.pt` has to say of them, the same on all ranks.
    """
    # Never the folder of the checkpoint that is there: it holds until the new one is whole.
    number = from_main(1 + max((_number(path) for path in work.glob(f"{name}-*.tables")), default=0))
    folder = work / f"{name}-{number}.tables"
    first, end = ranges.own
    num_rows = int(ranges.bounds[-1])
    if writes:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for table, rows in tables.items():
            with (folder / f"{file_name(table)}.npy").open("wb") as file:
                shape = (num_rows, *rows.shape[1:])
                np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
                os.truncate(file.fileno(), file.tell() + num_rows * _row_bytes(rows))
    wait_for_all()
    sums = {}
    for table, rows in tables.items():
        with _write_into(folder / f"{file_name(table)}.npy") as file:
            file.seek(os.fstat(file.fileno()).st_size - (num_rows - first) * _row_bytes(rows))
            sums[table] = 0
            for part in slices(len(rows), _CHUNK_ROWS):
                content = rows[part].contiguous().numpy().tobytes()
                file.write(content)
                sums[table] = zlib.crc32(content, sums[table])
            file.flush()
            os.fsync(file.fileno())
    shards = [{"rows": [first, end], "crc32": sums}]
    return {
        "folder": folder.name,
        "tables": {table: [num_rows, *rows.shape[1:]] for table, rows in tables.items()},
        "shards": [shard for of_rank in from_all(shards) for shard in of_rank],
    }


def _row_bytes(rows: Tensor) -> int:
    """Return the bytes of a row; there may be none."""
    return 4 * math.prod(rows.shape[1:])


def _write_into(path: Path) -> IO[bytes]:
    """Open a file that others write other rows of at the same time."""
    # Not to read: a client of NFS that has read a page of a file writes all of it, with what others have written there
    # since as it was before.
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CLOEXEC), "wb")


def _number(folder: Path) -> int:
    return int(folder.stem.rpartition("-")[2])


def remove_others(work: Path, name: str, described: dict[str, Any] | None) -> None:
    """Remove the folders of other checkpoints of a name than the one that is described; None: all of them."""
    for folder in work.glob(f"{name}-*.tables"):
        if described is None or folder.name != described["folder"]:
            shutil.rmtree(folder, ignore_errors=True)


def read_shards(work: Path, described: dict[str, Any], ranges: Ranges) -> dict[str, Tensor]:
    """Return this rank's rows of the tables, float32 (own rows, ...) by name, in memory.

    Raises IntegrityError: a file is not as it was written, or not on this machine.
    """
    first, end = ranges.own
    tables = {}
    for table, shape in described["tables"].items():
        path = work / file_name(described["folder"]) / f"{file_name(table)}.npy"
        entry = ArrayEntry(path=path.name, dtype="float32", shape=tuple(shape))
        for shard in described["shards"]:
            start, stop = shard["rows"]
            if start < end and first < stop:
                _check(path, entry, start, stop, shard["crc32"][table])
        tables[table] = torch.from_numpy(np.array(open_rows(path, entry, first, end)))
    return tables


def _check(path: Path, entry: ArrayEntry, start: int, stop: int, expected: int) -> None:
    try:
        rows = open_rows(path, entry, start, stop)
    except (OSError, ValueError) as error:
        raise IntegrityError(
            f"{path} cannot be read: {error}; remove the checkpoint beside it to train anew"
        ) from error
    checksum = 0
    for part in slices(stop - start, _CHUNK_ROWS):
        checksum = zlib.crc32(np.ascontiguousarray(rows[part]).data, checksum)
    if checksum != expected:
        raise IntegrityError(
            f"{path}: rows {start:,} to {stop - 1:,} are not as they were written, or were written on another machine; "
            "remove the checkpoint beside it to train anew"
        )


def whole_tables(tables: dict[str, Tensor], ranges: Ranges, scratch: Path, *, writes: bool) -> dict[str, Tensor]:
    """Bring all ranks' rows of tables together on the ranks that write; all ranks together.

    They lie in mapped files in `scratch`, which go with the last look at them. Others get no table.
    """
    exchange = ranges.exchange
    whole = {}
    for table, rows in tables.items():
        columns = int(np.prod(rows.shape[1:], dtype=np.int64))
        flat = rows.reshape(len(rows), columns).numpy()
        out = scratch_array(scratch, int(ranges.bounds[-1]), columns) if writes else None
        for number in range(-(-exchange.largest(len(flat)) // _CHUNK_ROWS)):
            piece = np.ascontiguousarray(flat[number * _CHUNK_ROWS : (number + 1) * _CHUNK_ROWS])
            pieces = exchange.gather(piece)
            if out is not None:
                start = 0
                for rank in range(exchange.world_size):
                    low = int(ranges.bounds[rank]) + number * _CHUNK_ROWS
                    count = max(0, min(_CHUNK_ROWS, int(ranges.bounds[rank + 1]) - low))
                    out[low : low + count] = pieces[start : start + count]
                    start += count
        if out is not None:
            whole[table] = torch.from_numpy(out).reshape(len(out), *rows.shape[1:])
    return whole
