"""Numbers of each entity, or relation: a `.npy` matrix whose rows are in the order of a list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from configs.errors import DataError
from tasks.arrays import Array, blocks
from tasks.ingest.features import finite_float32
from tasks.ingest.triples.names import Names
from tasks.readers.arrays.npy import NpyFile, check_row
from tasks.readers.columns import is_text

_CHUNK_BYTES = 8 << 20


class FeatureMatrix:
    """Row i is that of entity i of the list or, without a list, of the id i. A chunk is in memory at a time."""

    def __init__(self, path: Path, names: Names) -> None:
        """Raises DataError: another shape than that of the names."""
        self.path, self.names = path, names
        if path.suffix.lower() != ".npy":
            raise DataError(f"is no .npy, which features of {names.plural} are read from", path=path)
        header = NpyFile(path).header()
        check_row(header, path)
        if len(header.shape) != 2:
            raise DataError(f"has the shape {header.shape}; ({names.plural}, columns) is needed", path=path)
        self.count, self.width = header.shape
        if names.listed and self.count != names.count:
            raise DataError(f"has {self.count:,} rows, {names.path} names {names.count:,} {names.plural}", path=path)
        self._ids = None if names.listed else names.keys()
        if self._ids is not None and is_text(self._ids.type):
            raise DataError(
                f"has rows without ids, and the {names.plural} are texts: give their list in the order of the rows "
                f"(dataset.{names.plural})",
                path=path,
            )

    def rows(self, owners: Array) -> Iterator[Array]:
        """Yield the rows of some, by the numbers that their names have: (n, width) float32, in portions.

        Raises DataError: a row is missing, or holds what is no finite number.
        """
        values = NpyFile(self.path).mapped()
        for part in blocks(len(owners), max(1, _CHUNK_BYTES // (4 * self.width))):
            rows = owners[part] if self._ids is None else np.asarray(self._ids)[owners[part]]
            beyond = np.flatnonzero((rows < 0) | (rows >= self.count))
            if len(beyond):
                raise DataError(
                    f"has {self.count:,} rows, and none for the {self.names.what} {rows[beyond[0]]}", path=self.path
                )
            yield finite_float32(values[rows], self.path, rows)
