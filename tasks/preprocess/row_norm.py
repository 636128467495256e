"""Transform that scales each row by itself: normalize_rows."""

from __future__ import annotations

from typing import Literal

import numpy as np

from configs.registry import TRANSFORMS
from tasks.preprocess.transform import Array, ColumnTransform, State, TransformConfig


@TRANSFORMS.register("normalize_rows")
class NormalizeRows(ColumnTransform):
    """x / ||x||: each node's row of a column to length 1 (bags of words, as Kipf and Welling); rows of zeros stay."""

    class Config(TransformConfig):
        """Options of normalize_rows."""

        norm: Literal["l1", "l2"] = "l1"
        """Sum of magnitudes, or Euclidean length."""

    def apply(self, x: Array, state: State) -> Array:
        """Divide each row, (n, D), by its norm."""
        length = np.linalg.norm(x.astype(np.float64), ord=1 if self.config.norm == "l1" else 2, axis=1, keepdims=True)
        return (x / np.where(length > 0, length, 1.0)).astype(np.float32)
