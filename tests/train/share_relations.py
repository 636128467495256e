"""What two ranks run in test_grid_ranks.py: `python share_relations.py`, with a rank's variables set."""

from __future__ import annotations

import os

import torch

from configs.registry import MODELS
from models.kernels.tables.row_layout import UpdateRule
from tasks.train.knowledge.relations import RelationRows
from tasks.train.ranks.collectives import joined
from tasks.train.strategies.base import Ranks
from tests.train.two_processes import end


def main(rank: int, world: int) -> None:
    options = MODELS.config({"name": "distmult", "dim": 6})
    with joined(Ranks(rank, world, rank, world), torch.device("cpu")):
        for rule, sums in (("elementwise_adagrad", True), ("adam", False)):
            relations = RelationRows(MODELS.get("distmult"), options, 3, UpdateRule(rule), 5)  # type: ignore[arg-type]
            table = relations.table
            before, remembered = table.read(), table.moment.reshape(3, -1)[:, :6].copy()
            for number in range(1, 3):  # what was shared once is not added again
                moved = [0.5 * number, -0.25]  # by each rank
                table.rows[1] += moved[rank]
                table.moment.reshape(3, -1)[1, :6] += 1 + rank
                relations.parts()["relations"].share(world)
                before[1] += sum(moved)
                remembered[1] += 3 if sums else 1.5
                torch.testing.assert_close(torch.from_numpy(table.read()), torch.from_numpy(before))
                found = torch.from_numpy(table.moment.reshape(3, -1)[:, :6].copy())
                torch.testing.assert_close(found, torch.from_numpy(remembered))


if __name__ == "__main__":
    main(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    end()
