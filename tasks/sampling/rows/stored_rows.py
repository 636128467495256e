"""Numeric features as a training holds them: as they are stored, or in fewer bits."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from configs.errors import DataError
from models.kernels.tables.byte_rows import SCALE_BYTES, pack_rows
from tasks.arrays import Array, blocks

Rows = Literal["stored", "float16", "bfloat16", "int8"]
_CHUNK_ROWS = 1 << 16


def stored_rows(feat: Array, kind: Rows) -> Array:
    """Return features (N, D) in memory as float16, bfloat16 (uint16), or int8 (N, D + 4), see `byte_rows`; or as is.

    Raises DataError: a number is NaN or infinite, and int8 has no such.
    """
    if kind == "stored":
        return feat
    width = feat.shape[1] + (SCALE_BYTES if kind == "int8" else 0)
    out = np.empty((len(feat), width), {"float16": np.float16, "bfloat16": np.uint16, "int8": np.int8}[kind])
    for some in blocks(len(feat), _CHUNK_ROWS):
        rows = np.array(feat[some], np.float32)
        if kind == "float16":
            out[some] = rows
        elif kind == "bfloat16":
            out[some] = torch.from_numpy(rows).bfloat16().view(torch.uint16).numpy()
        else:
            try:
                out[some] = pack_rows(rows)
            except ValueError as error:
                raise DataError(f"features: {error}; take rows=bfloat16, or fill them in preprocess") from error
    return out
