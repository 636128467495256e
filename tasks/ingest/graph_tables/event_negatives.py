"""Negatives that events are ranked against: pairs that are none, or were, or will be.

Of Poursafaei and others, NeurIPS 2022 (arXiv:2207.10128, section 4): most pairs of a stream come again and again, and a
random pair is told from those by whether it ever was an edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from configs.errors import DataError
from tasks.arrays import Array
from tasks.edge_ends import ANY, EdgeEnds, are_never_joined
from tasks.ingest.graph_tables.split_options import NEGATIVE_KINDS
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

    def __init__(self, train: Events, num_nodes: int, *, directed: bool, seed: int, ends: EdgeEnds = ANY) -> None:
        """`ends`: what random ones join."""
        self.num_nodes, self.ends, self.directed, self.seed = num_nodes, ends, directed, seed
        self.trained = np.unique(self._numbers(train.src, train.dst))

    def draw(self, events: Events, kinds: Sequence[str], per_edge: int, split: int) -> dict[str, Array]:
        """Return `src` and `dst`, int64 (n, kinds * per_edge): kind by kind. Raises DataError: a kind has none."""
        numbers = self._numbers(events.src, events.dst)
        of_split = np.unique(numbers)
        parts = []
        for kind in kinds:
            random = np.random.default_rng([self.seed, split, NEGATIVE_KINDS.index(kind)])
            shape = len(numbers), per_edge
            if kind == "random":
                parts.append(self._random(events, of_split, shape, random))
                continue
            if kind == "historical":
                pool, why = (
                    np.setdiff1d(self.trained, of_split),
                    "all pairs that were edges in training are edges again",
                )
            else:
                pool, why = np.setdiff1d(of_split, self.trained), "all edges were edges in training already"
            if not len(pool):
                raise DataError(
                    f"there are no {kind} negatives, because {why}; leave {kind} out of dataset.split.negatives"
                )
            drawn = random.choice(pool, shape)
            if kind == "inductive":
                self._not_at_once(drawn, pool, numbers, events.time, random)
            parts.append(np.stack(np.divmod(drawn, self.num_nodes), 2))
        pairs = np.concatenate(parts, 1)
        return {"src": pairs[:, :, 0], "dst": pairs[:, :, 1]}

    def _numbers(self, src: Array, dst: Array) -> Array:
        return pair_numbers(src, dst, self.num_nodes, directed=self.directed)

    def _random(self, events: Events, of_split: Array, shape: tuple[int, int], random: np.random.Generator) -> Array:
        """Return the events' sources with any targets that make no edge of the split but could be one, (n, m, 2).

        A source that is joined to all of them gives way to another one. Raises DataError: there are no such pairs.
        """
        src = np.broadcast_to(events.src[:, None].astype(np.int64), shape).copy()
        dst = np.empty(shape, np.int64)
        wrong = np.ones(shape, np.bool_)
        for ends, keep in ((self.ends, True), (self.ends, False), (self.ends.wider(self.num_nodes), False)):
            for _ in range(_ROUNDS):
                count = int(wrong.sum())
                dst[wrong] = _drawn(ends.targets, count, self.num_nodes, random)
                if not keep:
                    src[wrong] = _drawn(ends.sources, count, self.num_nodes, random)
                wrong = np.isin(self._numbers(src, dst), of_split)
                wrong |= are_never_joined(src.ravel(), dst.ravel(), ends.side).reshape(shape)
                if not wrong.any():
                    return np.stack([src, dst], 2)
        raise DataError(
            "there are no random negatives, because nearly all possible pairs are edges of the split; leave "
            "random out of dataset.split.negatives"
        )

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


def _drawn(ends: Array, shape: Any, num_nodes: int, random: np.random.Generator) -> Array:
    """Return nodes, int64: any of `ends`, or of all where these are none."""
    places = random.integers(0, len(ends) or num_nodes, shape)
    return ends[places].astype(np.int64) if len(ends) else places
