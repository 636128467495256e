"""What applying a model writes: rows of numbers with their ids.

Parquet has a column of fixed-size lists of float32 beside those of ids. `.npy` and `.safetensors` (the tensor
`embedding`) have a matrix, float32 (rows, dim), and the ids in a Parquet file beside it. word2vec's two formats are as
word2vec.c writes words and vectors.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from tasks.apply.vector_files.formats import HAS_IDS_BESIDE, ids_path
from tasks.ingest.ids.id_index import IdIndex
from tasks.storage.graph_store import Array, create_array
from tasks.storage.ids import AT_MOMENTS
from tasks.storage.outputs.tables import ParquetOutput

VECTOR = "embedding"
_NO_WORD = re.compile(r"\s")
_OTHERS = "write Parquet, npy or safetensors (--output FILE.parquet), which hold any id"


class ParquetVectors(ParquetOutput):
    """Columns of ids and one of fixed-size lists of float32."""

    def __init__(self, path: Path) -> None:
        # As for features of data sets: numbers hardly repeat, but their single bytes do.
        super().__init__(path, use_dictionary=False, column_encoding={f"{VECTOR}.list.element": "BYTE_STREAM_SPLIT"})
        self.files = [path]

    def add(self, ids: dict[str, pa.Array], values: Array) -> None:
        """Write some rows."""
        flat = pa.array(np.ascontiguousarray(values, np.float32).ravel())
        self.write(pa.table({**ids, VECTOR: pa.FixedSizeListArray.from_arrays(flat, values.shape[1])}))


class MatrixVectors(ParquetOutput):
    """A memory-mapped matrix, float32 (rows, dim), in `.npy` or `.safetensors`, and a Parquet file of ids."""

    def __init__(self, path: Path, rows: int, dim: int) -> None:
        super().__init__(ids_path(path))
        self.files = [path, ids_path(path)]
        if path.suffix == ".npy":
            self._matrix: Array = create_array(path, (rows, dim), np.float32)
            return
        tensor = {"dtype": "F32", "shape": [rows, dim], "data_offsets": [0, 4 * rows * dim]}
        header = json.dumps({VECTOR: tensor}).encode()
        header += b" " * (-len(header) % 8)  # numbers begin at a multiple of their size
        with path.open("wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            # A full disk is an error here, where writing to the map would end the process.
            os.posix_fallocate(file.fileno(), 0, 8 + len(header) + 4 * rows * dim)
        self._matrix = np.memmap(path, "<f4", "r+", 8 + len(header), (rows, dim))

    def add(self, ids: dict[str, pa.Array], values: Array) -> None:
        """Write some rows."""
        self._matrix[self.num_rows : self.num_rows + len(values)] = values
        self.write(pa.table(ids))


class Word2vecVectors(AbstractContextManager["Word2vecVectors"]):
    """A file of words and vectors, as text or binary: the number of both first, then a row a node."""

    def __init__(self, path: Path, rows: int, dim: int, *, binary: bool) -> None:
        self.files = [path]
        self._binary = binary
        self._known = IdIndex()
        self._file = path.open("wb")
        self._file.write(f"{rows} {dim}\n".encode())

    def __exit__(self, *error: object) -> None:
        """Close it."""
        self._file.close()

    def add(self, ids: dict[str, pa.Array], values: Array) -> None:
        """Write some rows. Raises DataError: an id that is empty or has a space is no word, or ids repeat.

        Who reads such a file takes a word for its key: of two alike one would be lost.
        """
        column, *others = (name for name in ids if name not in AT_MOMENTS)  # of which the id holds both
        if others:
            columns = " and ".join(ids)
            raise DataError(f"nodes are told apart by {columns}, and word2vec's format has one word each; {_OTHERS}")
        texts = compute.cast(ids[column], pa.string())
        words, before = texts.to_pylist(), self._known.count
        place = self._known.add(texts)
        again = np.flatnonzero(place != np.arange(before, before + len(place)))
        if len(again):
            raise DataError(
                f"the id {words[again[0]]!r} is asked for twice, and a word stands once in word2vec's format; ask "
                f"once, or {_OTHERS}"
            )
        for word in words:
            if not word or _NO_WORD.search(word):
                raise DataError(
                    f"the id {word!r} is no word of word2vec's format, where a word has a letter and no blank or line "
                    f"end; {_OTHERS}"
                )
        rows = np.ascontiguousarray(values, "<f4")
        if self._binary:
            for word, row in zip(words, rows, strict=True):
                self._file.write(f"{word} ".encode() + row.tobytes() + b"\n")
        else:
            # nine digits bring every float32 back
            self._file.writelines(
                f"{word} {' '.join(f'{number:.9g}' for number in row)}\n".encode()
                for word, row in zip(words, rows.tolist(), strict=True)
            )


Vectors = ParquetVectors | MatrixVectors | Word2vecVectors


def open_vectors(path: Path, format: str, rows: int, dim: int) -> Vectors:
    """Return the writer of a format of `tasks.apply.vector_files.formats`."""
    if format == "parquet":
        return ParquetVectors(path)
    if format in HAS_IDS_BESIDE:
        return MatrixVectors(path, rows, dim)
    return Word2vecVectors(path, rows, dim, binary=format == "word2vec-binary")
