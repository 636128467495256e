"""Vectors of texts, kept in the home by the texts' digests: an SQLite file for each encoder and what it learned.

A text is encoded once, whichever run, shard or column has it. SQLite keeps the file whole where a process is killed and
lets several processes read and write at once; memory is what it maps of the file. A vector has the day when it was last
asked for, by which `graphmill clean` removes it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa

from tasks.arrays import Array, blocks
from tasks.storage.file_names import file_name
from tasks.storage.home import Home

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
_KEY_BYTES = 16
KEY = np.dtype(f"S{_KEY_BYTES}")
_END = b"\1"
"""The last byte of keys: zeros at the end are padding to NumPy."""
_ASKED = 500  # keys of one query; older SQLites take 999
_WAIT_SECONDS = 120.0
_MAPPED_BYTES = 1 << 30
_DAY_SECONDS = 86_400
_TABLE = "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, used INTEGER NOT NULL, vector BLOB NOT NULL)"


def text_keys(texts: pa.Array) -> Array:
    """Return a digest of each text, large_string (n,) without nulls: bytes of 16, `S16` (n,)."""
    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends, np.int64)[texts.offset : texts.offset + len(texts) + 1].tolist() if ends else [0]
    letters = memoryview(data) if data is not None else memoryview(b"")
    digests = (
        hashlib.blake2b(letters[first:last], digest_size=_KEY_BYTES - 1).digest()
        for first, last in itertools.pairwise(offsets)
    )
    return np.frombuffer(b"".join(one + _END for one in digests), KEY)


def _anew_where_damaged(method: Callable[P, T]) -> Callable[P, T]:
    """Have a method of `KeptVectors` begin a damaged file anew, and do its work on that."""

    @functools.wraps(method)
    def begun_anew(*args: P.args, **options: P.kwargs) -> T:
        try:
            return method(*args, **options)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):  # locked, or the disk is full
                raise
            kept = args[0]
            assert isinstance(kept, KeptVectors)
            logger.warning("%s is damaged (%s); its texts are encoded again", kept.path, error)
            for path in (kept.path, kept.path.with_name(f"{kept.path.name}-journal")):
                path.unlink(missing_ok=True)
            return method(*args, **options)

    return begun_anew


@dataclass(frozen=True)
class KeptVectors:
    """Vectors by one encoder, float16 (dim,) each; picklable, opened where it is used."""

    path: Path
    dim: int

    @classmethod
    def of(cls, home: Home, key: str, dim: int) -> KeptVectors:
        """Return those of an encoder by its key (`TextEncoder.key`)."""
        return cls(home.texts / f"{file_name(key)}.sqlite", dim)

    @_anew_where_damaged
    def missing(self, keys: Array) -> Array:
        """Return which of some keys (n,) have no vector, bool; those that are there count as used today."""
        unique, places = np.unique(keys, return_inverse=True)
        there, today = np.zeros(len(unique), np.bool_), int(time.time()) // _DAY_SECONDS
        with self._open() as connection:
            for part, rows in self._rows(connection, unique, "used"):
                there[part] = np.isin(unique[part], np.array([key for key, _ in rows], unique.dtype))
                old = [(today, key) for key, used in rows if used < today]
                connection.executemany("UPDATE vectors SET used = ? WHERE key = ?", old)
        return ~there[places.reshape(-1)]

    @staticmethod
    def _rows(connection: sqlite3.Connection, keys: Array, column: str) -> Iterator[tuple[slice, list[Any]]]:
        """Yield some keys at a time, and the keys among them that are there, each with a column's value."""
        for part in blocks(len(keys), _ASKED):
            asked = keys[part].tolist()
            query = f"SELECT key, {column} FROM vectors WHERE key IN ({','.join('?' * len(asked))})"
            yield part, connection.execute(query, asked).fetchall()

    @_anew_where_damaged
    def add(self, keys: Array, vectors: Array) -> None:
        """Keep vectors (n, dim) by their keys (n,), all of them or none."""
        today, halves = int(time.time()) // _DAY_SECONDS, vectors.astype(np.float16)
        rows = [(key, today, vector.tobytes()) for key, vector in zip(keys.tolist(), halves, strict=True)]
        with self._open() as connection:
            connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)

    @_anew_where_damaged
    def find(self, keys: Array) -> tuple[Array, Array]:
        """Return the vectors of some keys (n,), float16 (n, dim), and which are there, bool (n,); others are 0."""
        unique, places = np.unique(keys, return_inverse=True)
        vectors, there = np.zeros((len(unique), self.dim), np.float16), np.zeros(len(unique), np.bool_)
        with self._open() as connection:
            for part, found in self._rows(connection, unique, "vector"):
                rows = [row for row in found if len(row[1]) == 2 * self.dim]
                at = part.start + np.searchsorted(unique[part], np.array([key for key, _ in rows], unique.dtype))
                vectors[at] = np.frombuffer(b"".join(row[1] for row in rows), np.float16).reshape(-1, self.dim)
                there[at] = True
        places = places.reshape(-1)
        return vectors[places], there[places]

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(open_vectors(self.path)) as connection, connection:
            yield connection


def open_vectors(path: Path) -> sqlite3.Connection:
    """Open a file of vectors, made where there is none. Raises sqlite3.DatabaseError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=_WAIT_SECONDS)
    try:
        connection.execute(f"PRAGMA mmap_size = {_MAPPED_BYTES}")
        connection.execute(_TABLE)
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def remove_unused(path: Path, before: float, *, dry_run: bool) -> int:
    """Remove vectors that were last used on a day that ended before a moment (seconds since 1970); returns bytes.

    A damaged file is left to the next run that needs it, one that is locked for long to the next clean-up.
    """
    day = int(before) // _DAY_SECONDS
    with contextlib.suppress(sqlite3.DatabaseError), contextlib.closing(open_vectors(path)) as connection:
        query = "SELECT COUNT(*), SUM(LENGTH(key) + LENGTH(vector)) FROM vectors WHERE used < ?"
        count, size = connection.execute(query, [day]).fetchone()
        if count and not dry_run:
            with connection:
                connection.execute("DELETE FROM vectors WHERE used < ?", [day])
            connection.execute("VACUUM")
        return int(size or 0)
    return 0
