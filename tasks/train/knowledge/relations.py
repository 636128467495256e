"""The rows of relations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.kernels.tables.row_layout import UpdateRule
from models.kernels.tables.row_moves import gather_rows, move_rows
from models.kernels.tables.row_tables import RowTable
from models.knowledge.base import KnowledgeModel
from models.triple_losses.base import TripleLoss
from tasks.arrays import Array
from tasks.train.knowledge.comparing import Gradients
from tasks.train.knowledge.shared import Projection, SharedRows


class RelationRows:
    """A float32 row for each relation, and with inverse relations one for its way back, behind the others."""

    def __init__(
        self,
        model: type[KnowledgeModel],
        config: Any,
        num_relations: int,
        rule: UpdateRule,
        seed: int,
        features: tuple[Array, Array] | None = None,
        device: torch.device | None = None,
    ) -> None:
        """Draw the rows as they begin.

        `features`: float32 (num_relations, F), which add to the rows, and how many training triples each relation has;
        `device`: where steps are taken, None: on the CPU.
        """
        self.table = RowTable.zeros(config.relation_rows(num_relations), config.relation_width, "float32", rule)
        rows = torch.empty(self.table.num_rows, self.table.width)
        model.start_relations(config, rows, torch.Generator().manual_seed(seed))
        self.table.write(slice(None), rows.numpy())
        self._device = device
        self._own = SharedRows(self.table, device)
        self._projection: Projection | None = None
        if features is not None:
            # A way back takes another map: the other half of the columns.
            ways = self.table.num_rows // num_relations
            columns = np.kron(np.eye(ways, dtype=np.float32), features[0])
            self._projection = Projection(columns, np.tile(features[1], ways), self.table.width, rule, device)

    def begin_with(self, rows: Tensor, places: Array) -> None:
        """Replace rows by others, float32 (m, width); `places` (m,) says which, -1: none."""
        some = np.flatnonzero(places >= 0)
        own = self.table.read()
        own[places[some]] = rows[torch.from_numpy(some)].numpy()
        self.table.write(slice(None), own)
        self._own = SharedRows(self.table, self._device)

    def gradients(self) -> Gradients:
        """Return what gathers gradients of rows."""
        return Gradients(self._own.here)

    def read(self, numbers: Array) -> Tensor:
        """Return some rows, float32 (n, width)."""
        rows = gather_rows(self._own.here, numbers)
        if self._projection is not None:
            self._projection.add_to(rows, numbers)
        return rows

    def move(self, numbers: Array, gradients: Tensor, rate: float, noise: int) -> None:
        """Move rows down their gradients: see `move_rows`."""
        move_rows(self._own.here, numbers, gradients, rate, noise)
        if self._projection is not None:
            self._projection.collect(numbers, gradients)
            self._projection.step(rate, noise)

    def rows(self) -> Tensor:
        """Return a copy of all rows, float32 (R, width), as scores are taken of them when training is over."""
        rows = self._own.read()
        if self._projection is not None:
            self._projection.complete(rows, np.arange(len(rows)))
        return rows

    def parts(self) -> dict[str, SharedRows]:
        """Return all rows that are learnt."""
        return {"relations": self._own} | ({} if self._projection is None else {"map": self._projection.rows})


@dataclass(frozen=True)
class TripleTask:
    """What is learnt from triples, and by what."""

    model: type[KnowledgeModel]
    """Makes queries."""
    options: Any
    """The model's."""
    loader: Any
    """Makes batches."""
    loss: TripleLoss
    """Of scores."""
    relations: RelationRows
    """Their rows, which are learnt too."""
    projection: Projection | None
    """What entities' features add to their rows; None: nothing."""
    seed: int
    """Of all that is drawn."""
