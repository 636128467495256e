"""Dilated neighbours of kNN graphs."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from configs.errors import RecipeError
from models.block import Block
from models.gnn.dilation import dilate

# In-edges of four nodes: 7, 0, 1 and 4 of them; the sources number the edges.
COUNTS = [7, 0, 1, 4]


def knn(**extra: torch.Tensor) -> Block:
    indptr = torch.tensor([0, 7, 7, 8, 12])
    return Block(indptr, torch.arange(12, dtype=torch.int32), 12, edge_feat=torch.arange(12.0)[:, None], **extra)


def sources(block: Block) -> list[list[int]]:
    ends = block.indptr.tolist()
    return [block.indices[a:b].tolist() for a, b in pairwise(ends)]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (1, [[0, 1, 2], [], [7], [8, 9]]),
        (2, [[0, 2, 4], [], [7], [8, 10]]),
        (3, [[0, 3, 6], [], [7], [8, 11]]),
    ],
)
def test_every_step_th_neighbour_and_equally_many(step: int, expected: list[list[int]]) -> None:
    block = knn(degree=torch.tensor([7.0, 0, 1, 4, 9, 0, 0, 0, 0, 0, 0, 0]))
    dilated = dilate(block, step, 3)
    assert sources(dilated) == expected
    assert dilated.edge_feat is not None
    assert dilated.edge_feat[:, 0].tolist() == [u for row in expected for u in row]
    assert dilated.degree is not None
    assert dilated.degree.tolist()[:6] == [3, 0, 1, 2, 3, 0]
    assert dilated.num_src == 12
    assert dilate(block, step, 3) is dilated  # kept with the block
    assert dilate(block, 1, 1) is block


def test_weights_say_who_is_near() -> None:
    weight = torch.arange(12.0)  # the last ones are nearest
    assert dilate(knn(weight=weight), 2, 2).weight is None
    assert sources(dilate(knn(weight=weight), 2, 2)) == [[0, 2, 4, 6], [], [7], [9, 11]]
    assert sources(dilate(knn(weight=weight), 1, 2)) == [[3, 4, 5, 6], [], [7], [10, 11]]


def test_random_neighbours_come_from_as_far_away() -> None:
    seen: set[int] = set()
    for key in range(60):
        rows = sources(dilate(knn(), 2, 3, key))
        assert [len(set(row)) for row in rows] == [3, 0, 1, 2]
        assert set(rows[0]) <= set(range(6))
        seen |= set(rows[0])
        assert rows == sources(dilate(knn(), 2, 3, key))
    assert seen == set(range(6))


def test_samples_are_refused() -> None:
    block = knn(degree=torch.full((12,), 8.0))
    with pytest.raises(RecipeError, match=r"train\.loader=full, train\.loader\.fanout to -1"):
        dilate(block, 1, 2)
