"""Feature columns as they stream by: finite numbers of one width, or codes within their cardinalities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from configs.errors import DataError
from tasks.arrays import Array
from tasks.storage.manifests import FeatureColumn


class FeatureKind:
    """One feature column: numeric (float32) or categorical (int32 codes from 0)."""

    def __init__(self, column: str, categorical: bool, cardinalities: tuple[int, ...], path: object) -> None:
        """`cardinalities`: known beforehand, or empty: then the largest codes decide."""
        self.column, self.categorical, self.path = column, categorical, path
        self.cardinalities = cardinalities
        self.width = len(cardinalities)
        self._largest: Array | None = None

    @property
    def dtype(self) -> Any:
        """Type of the stored values."""
        return np.int32 if self.categorical else np.float32

    def checked(self, chunks: Iterable[Array]) -> Iterator[Array]:
        """Pass chunks (rows, width) on after checking them. Raises DataError naming row and column."""
        first_row = 0
        for chunk in chunks:
            self.width = chunk.shape[1]
            if self.categorical and len(chunk):
                self._check_codes(chunk, first_row)
            first_row += len(chunk)
            yield np.ascontiguousarray(chunk)

    def _check_codes(self, chunk: Array, first_row: int) -> None:
        limits = np.array(self.cardinalities or [np.iinfo(np.int32).max] * self.width)
        wrong = (chunk < 0) | (chunk >= limits)
        if wrong.any():
            row, column = (int(x[0]) for x in np.nonzero(wrong))
            raise DataError(
                f"code {int(chunk[row, column])} is not in 0..{int(limits[column]) - 1}",
                path=self.path,
                row=first_row + row,
                column=column,
            )
        largest = chunk.max(axis=0)
        self._largest = largest if self._largest is None else np.maximum(self._largest, largest)

    def describe(self) -> FeatureColumn:
        """Return the manifest's entry; call it when all chunks have passed."""
        cardinalities = self.cardinalities
        if self.categorical and not cardinalities:
            largest = np.zeros(self.width, np.int64) if self._largest is None else self._largest
            cardinalities = tuple(int(code) + 1 for code in largest)
        kind = "categorical" if self.categorical else "numeric"
        return FeatureColumn(column=self.column, kind=kind, dim=self.width, cardinalities=cardinalities)
