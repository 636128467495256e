"""Transform that scales each row by itself: normalize_rows."""

from __future__ import annotations

import numpy as np

from configs.registry import TRANSFORMS
from tasks.arrays import Array
from tasks.preprocess.transforms.base import ColumnTransform, State
from tasks.preprocess.transforms.configs import NormalizeRowsConfig


@TRANSFORMS.register("normalize_rows")
class NormalizeRows(ColumnTransform):
    """x / ||x||: each node's row of a column to length 1 (bags of words, as Kipf and Welling); rows of zeros stay."""

    Config = NormalizeRowsConfig

    def apply(self, x: Array, state: State) -> Array:
        """Divide each row, (n, D), by its norm."""
        length = np.linalg.norm(x.astype(np.float64), ord=1 if self.config.norm == "l1" else 2, axis=1, keepdims=True)
        return (x / np.where(length > 0, length, 1.0)).astype(np.float32)
