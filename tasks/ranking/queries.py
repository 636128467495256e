"""Queries of knowledge graphs, ready for the loops that score entities with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from models.kernels.threads import even_rows, num_threads, run_rows
from tasks.arrays import Array, blocks
from tasks.ranking.entities import EntityBlocks, Rows, float_rows
from tasks.ranking.known_triples import Known
from tasks.ranking.loops import pack_tiles, score_rows
from tasks.ranking.terms import GROUP, LANES, SQUARE, Kind, Similarity

_GROUPS_AT_ONCE = 16
"""Groups that a thread scores with a tile before the next: with 200 columns 100 KB, in the second-level cache."""
_MOST_PACKED_BYTES = 1 << 24
_GATHERED_BYTES = 1 << 22
_STATE_BYTES = 80
"""Of a query, beside its numbers: the true entity and its score, known ones' places, counts."""


@dataclass(frozen=True)
class Queries:
    """What entities are compared with. A score is higher for a likelier entity e:

    - "dot": q . e
    - "l1": -sum |q - s e|
    - "l2": -sqrt(sum (q - s e)^2)
    - "complex": -sum_j |q_j - e_j|, of complex numbers: the first w/2 columns are real parts, the others imaginary ones
    """

    kind: Kind
    vectors: Tensor
    """float32 (n, w)."""
    scale: Tensor | None = None
    """float32 (n, w): s, of l1 and l2; None: 1."""

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def width(self) -> int:
        """Columns of a query."""
        return self.vectors.shape[1]

    @property
    def steps(self) -> int:
        """Terms of a score."""
        return self.width // 2 if self.kind == "complex" else self.width

    def part(self, rows: slice | Array) -> Queries:
        """Return some of them."""
        return Queries(self.kind, self.vectors[rows], None if self.scale is None else self.scale[rows])

    def score_own(self, rows: Rows, scores: Rows) -> None:
        """Score rows float32 (n K, w), K of each query's own, into scores float32 (n, K); of l2 without the root."""
        scales = None if self.scale is None else float_rows(self.scale).reshape(-1)
        shape = Similarity(self.kind), LANES, LANES.count, self.steps, SQUARE, SQUARE.count
        vectors = float_rows(self.vectors).reshape(-1)
        run_rows(score_rows, even_rows(len(self)), *shape, vectors, scales, rows, scores)

    def printed(self, scores: Rows) -> Rows:
        """Return scores of the loops as the formulas have them."""
        return -np.sqrt(-scores) if self.kind == "l2" else scores


class Contest:
    """A batch of queries that meets all entities, block after block."""

    def __init__(self, queries: Queries, known: Known | None, entities: EntityBlocks, packed_bytes: int) -> None:
        self.queries, self.num_entities = queries, entities.num_entities
        self.num_groups = -(-len(queries) // GROUP)
        self.num_padded = self.num_groups * GROUP
        scale = queries.scale
        self._packed = _in_groups(queries.vectors), None if scale is None else _in_groups(scale)
        known = Known.none(len(queries)) if known is None else known
        # Those that fill the last group have none.
        places = (self.padded(column, 0) for column in (known.low, known.high, known.base))
        self._known = *places, known.triples, np.empty(self.num_padded, np.int64)
        self._tiles_at_once = max(1, packed_bytes // (4 * LANES.count * max(queries.width, 1)))
        threads = num_threads()
        each = min(_GROUPS_AT_ONCE, -(-self.num_groups // (2 * threads)) if threads > 1 else _GROUPS_AT_ONCE)
        self._bounds = np.append(np.arange(0, self.num_groups, each), self.num_groups)

    def meet(self, entities: EntityBlocks, counted: Array | None, loop: Callable[..., Any], *state: Any) -> None:
        """Call a loop of `loops.py` for all groups and all tiles.

        Args:
            entities: those that the queries meet.
            counted: bool (N,), those that count; None: all.
            loop: `compare_tiles` or `keep_best`.
            state: its last arguments, of a query each.
        """
        size, width = LANES.count, self.queries.width
        tiles = np.empty(self._tiles_at_once * size * width, np.float32)
        bits = np.empty(self._tiles_at_once, np.uint64)
        shape = Similarity(self.queries.kind), LANES, size, self.queries.steps, width
        own = (*self._packed, *self._known, *state)
        for first, block in entities:
            for rows in blocks(len(block), self._tiles_at_once * size):
                part, begin = block[rows], first + rows.start
                count = -(-len(part) // size)
                run_rows(pack_tiles, even_rows(count), SQUARE, SQUARE.count, size, part, begin, counted, tiles, bits)
                run_rows(loop, self._bounds, *shape, begin, tiles, bits[:count], *own)

    def padded(self, values: Array, fill: Any) -> Array:
        """Return an array (n,) with `fill` for what fills the last group."""
        filled = np.full(self.num_padded, fill, values.dtype)
        filled[: len(values)] = values
        return filled


def contests(
    queries: Queries, known: Known | None, entities: EntityBlocks, memory: int, state_bytes: int = 0
) -> Iterator[tuple[slice, Contest]]:
    """Cut queries into batches for so many bytes of memory, `state_bytes` of a query's beside what all have."""
    row_bytes = 4 * queries.width
    packed = min(memory // 4, _MOST_PACKED_BYTES)
    query_bytes = row_bytes * (1 if queries.scale is None else 2) + _STATE_BYTES + state_bytes
    batch = max(1, (memory - packed) // query_bytes // GROUP) * GROUP
    for rows in blocks(len(queries), batch):
        yield rows, Contest(queries.part(rows), None if known is None else known.part(rows), entities, packed)


def true_scores(queries: Queries, truth: NDArray[np.int64], entities: EntityBlocks) -> Rows:
    """Return the score of each query's true entity, float32 (n,), in one pass over all entities."""
    true = np.empty((len(queries), 1), np.float32)
    order = np.argsort(truth, kind="stable")
    ordered = truth[order]
    most = max(1, _GATHERED_BYTES // (4 * max(queries.width, 1)))
    for first, block in entities:
        low, high = np.searchsorted(ordered, [first, first + len(block)])
        for rows in blocks(high - low, most):
            chosen = order[low + rows.start : low + rows.stop]
            scores = np.empty((len(chosen), 1), np.float32)
            queries.part(chosen).score_own(block[truth[chosen] - first], scores)
            true[chosen] = scores
    return true[:, 0]


def _in_groups(vectors: Tensor) -> Rows:
    """Return vectors (n, w) as (g, w, GROUP), flat; zeros fill the last group."""
    count, width = vectors.shape
    groups = np.zeros((-(-count // GROUP), width, GROUP), np.float32)
    rows = float_rows(vectors)
    for place in range(GROUP):
        group = rows[place::GROUP]
        groups[: len(group), :, place] = group
    return groups.reshape(-1)
