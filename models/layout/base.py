"""What a layout is: a table of points, moved by the forces of its objective."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.kernels.layout.move_points import PointRows, layout_loss, move_points
from models.kernels.layout.objectives import LayoutObjective
from models.kernels.tables.row_tables import RowTable
from models.layers.encoders import NodeEncoder
from models.vectors.base import LearntFromSamples, Meeting, RowsModel, Samples


class LayoutModel(LearntFromSamples, RowsModel):
    """Points in two or three dimensions, one for each node.

    A new one is one file: a `Config` and an `objective`, or, with forces of your own, `learn` and `loss`.
    """

    encoder: NodeEncoder
    evaluated_as = "layout"

    @classmethod
    def objective(cls, config: Any) -> LayoutObjective:
        """Return what moves points, of options that are `settled`."""
        raise AssertionError(f"{cls.__name__} defines no objective")

    @classmethod
    def learn(cls, config: Any, tables: Meeting, samples: Samples, rate: float, noise: int) -> None:
        """Move the points of each sample."""
        ((heads, tails),) = tables.values()
        options = {"most": config.most, "move_negatives": getattr(config, "move_negatives", True)}
        move_points(points_of(heads), points_of(tails), *samples.rows, cls.objective(config), rate=rate, **options)

    @classmethod
    def loss(cls, config: Any, tables: Any, samples: Samples) -> float:
        """Return the objective's loss."""
        ((heads, tails),) = tables.values()
        return layout_loss(points_of(heads), points_of(tails), *samples.rows, cls.objective(config))

    @classmethod
    def vectors(
        cls, config: Any, rows: Mapping[str, tuple[NDArray[np.float32], NDArray[np.float32]]]
    ) -> NDArray[np.float32]:
        """Return the points' coordinates: (n, dim)."""
        ((points, _),) = rows.values()
        return points


def points_of(table: RowTable) -> PointRows:
    """Return a table's rows as points: the same memory."""
    return PointRows(table.values, table.stride, table.width)
