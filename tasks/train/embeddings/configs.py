"""Where learnable embeddings of nodes live in training: options, apart from their code."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from configs.base import ComponentConfig
from configs.registry import EMBEDDINGS


@EMBEDDINGS.options("dense", "build")
class DenseConfig(ComponentConfig):
    """A parameter of the model on its device, as any other."""

    name: str = "dense"


@EMBEDDINGS.options("sparse", "build")
class SparseConfig(ComponentConfig):
    """A table in CPU memory, of which a step touches the batch's rows: for tables larger than the device's memory."""

    name: str = "sparse"
    optimizer: Literal["row_adagrad", "sparse_adam"] = "row_adagrad"
    """Adagrad with one accumulator a row, or SparseAdam."""
    learning_rate: float = Field(default=0.01, gt=0, le=1e30)
    """Its own; it follows `train.schedule` and `train.lr_scaling` as the other one does."""
