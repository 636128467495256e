"""Negatives that events are ranked against: pairs that are none, or were, or will be.

Of Poursafaei and others, NeurIPS 2022 (arXiv:2207.10128, section 4): most pairs of a stream come again and again, and a
random pair is told from those by whether it ever was an edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from configs.errors import DataError
from tasks.arrays import Array
from tasks.ingest.tables.split_options import NEGATIVE_KINDS
from tasks.pair_set import pair_numbers

_ROUNDS = 32


@dataclass(frozen=True)
class Events:
    """Edges of a split, (n,) each."""

    src: Array
    dst: Array
    time: Array


class EventNegatives:
    """Draws negatives; 8 bytes a pair that was an edge, and 24 for each negative of a split."""

    def __init__(self, train: Events, num_nodes: int, *, directed: bool, seed: int) -> None:
        self.num_nodes, self.directed, self.seed = num_nodes, directed, seed
        self.known = np.unique(self._numbers(train.src, train.dst))

    def draw(self, events: Events, kinds: Sequence[str], per_edge: int, split: int) -> dict[str, Array]:
        """Return `src` and `dst`, int64 (n, kinds * per_edge): kind by kind. Raises DataError: a kind has none."""
        numbers = self._numbers(events.src, events.dst)
        own = np.unique(numbers)
        parts = []
        for kind in kinds:
            random = np.random.default_rng([self.seed, split, NEGATIVE_KINDS.index(kind)])
            shape = len(numbers), per_edge
            if kind == "random":
                parts.append(self._random(events, own, shape, random))
                continue
            if kind == "historical":
                pool, why = np.setdiff1d(self.known, own), "all pairs that were edges in training are edges again"
            else:
                pool, why = np.setdiff1d(own, self.known), "all edges were edges in training already"
            if not len(pool):
                raise DataError(
                    f"there are no {kind} negatives, for {why}; leave {kind} out of dataset.split.negatives"
                )
            drawn = random.choice(pool, shape)
            if kind == "inductive":
                self._not_at_once(drawn, pool, numbers, events.time, random)
            parts.append(np.stack(np.divmod(drawn, self.num_nodes), 2))
        pairs = np.concatenate(parts, 1)
        return {"src": pairs[:, :, 0], "dst": pairs[:, :, 1]}

    def _numbers(self, src: Array, dst: Array) -> Array:
        return pair_numbers(src, dst, self.num_nodes, directed=self.directed)

    def _random(self, events: Events, own: Array, shape: tuple[int, int], random: np.random.Generator) -> Array:
        """Return the events' sources with any targets that make no edge of the split and no loop, (n, m, 2)."""
        src = np.broadcast_to(events.src[:, None].astype(np.int64), shape)
        dst = random.integers(0, self.num_nodes, shape)
        for _ in range(_ROUNDS):
            wrong = np.isin(self._numbers(src, dst), own) | (src == dst)
            if not wrong.any():
                break
            dst[wrong] = random.integers(0, self.num_nodes, int(wrong.sum()))
        return np.stack([src, dst], 2)

    @staticmethod
    def _not_at_once(drawn: Array, pool: Array, numbers: Array, time: Array, random: np.random.Generator) -> None:
        """Draw anew, in place, what is an edge at the very time of its event."""
        moments, moment = np.unique(time, return_inverse=True)
        pairs, pair = np.unique(numbers, return_inverse=True)
        at_once = np.unique(pair * len(moments) + moment)
        for _ in range(_ROUNDS):
            keys = np.searchsorted(pairs, drawn) * len(moments) + moment[:, None]
            wrong = np.isin(keys, at_once)
            if not wrong.any():
                break
            drawn[wrong] = random.choice(pool, int(wrong.sum()))
