"""Positional features: how likely a random walk is back where it started after k steps."""

from __future__ import annotations

import numpy as np
from numba import njit

from configs.errors import RecipeError
from configs.registry import TRANSFORMS
from tasks.arrays import Array
from tasks.counter_random import GOLDEN, mix
from tasks.preprocess.transforms.base import Column, StructureTransform
from tasks.preprocess.transforms.configs import RandomWalkConfig
from tasks.preprocess.transforms.graph_view import GraphView

# Steps of the exact computation (sum over graphs of nodes × edges × steps) that are still minutes on one core.
_MAX_EXACT_STEPS = 10**12


@njit(cache=True, nogil=True)
def sampled_returns(indptr: Array, indices: Array, first: int, num_walks: int, seed: int, out: Array) -> None:
    """Estimate return probabilities by walking; indptr int64 (N + 1,), indices id (E,).

    `out`, float32 (n, steps), gets the share of the walks from node first + i that are back after k + 1 steps. Walks
    depend on seed and node only, not on how the nodes are split over workers.
    """
    here = np.empty(num_walks, np.int64)
    for i in range(out.shape[0]):
        start = first + i
        here[:] = start
        state = mix(np.uint64(seed) * GOLDEN + np.uint64(start))
        for k in range(out.shape[1]):
            back = 0
            # All walks take a step before any takes the next one: their cache misses overlap.
            for w in range(num_walks):
                v = here[w]
                state += GOLDEN
                if v < 0:
                    continue
                degree = indptr[v + 1] - indptr[v]
                if degree == 0:
                    here[w] = -1
                    continue
                # The high 32 bits, scaled: off from uniform by degree / 2^32.
                pick = (mix(state) >> np.uint64(32)) * np.uint64(degree) >> np.uint64(32)
                here[w] = indices[indptr[v] + np.int64(pick)]
                back += here[w] == start
            out[i, k] = back / num_walks


@njit(cache=True, nogil=True)
def exact_returns(indptr: Array, indices: Array, offsets: Array, first: int, out: Array) -> None:
    """Compute return probabilities: a vector of probabilities over the start node's graph, step by step.

    indptr int64 (N + 1,), indices id (E,); graph g holds nodes offsets[g] to offsets[g + 1]; `out`, float32 (n, steps),
    is filled for nodes first, first + 1, ...
    """
    for i in range(out.shape[0]):
        start = first + i
        g = np.searchsorted(offsets, start, side="right") - 1
        low, high = offsets[g], offsets[g + 1]
        here = np.zeros(high - low, np.float64)
        here[start - low] = 1.0
        for k in range(out.shape[1]):
            there = np.zeros(high - low, np.float64)
            for v in range(low, high):
                if here[v - low] > 0 and indptr[v + 1] > indptr[v]:
                    share = here[v - low] / (indptr[v + 1] - indptr[v])
                    for e in range(indptr[v], indptr[v + 1]):
                        there[indices[e] - low] += share
            here = there
            out[i, k] = here[start - low]


@TRANSFORMS.register("random_walk_pe")
class RandomWalk(StructureTransform):
    """Add random-walk return probabilities after 1..steps steps: tells cycles and density apart, needs no eigenvectors.

    Feature k of node v is (P^k)[v, v] with P[v, u] = 1 / degree(v) for every in-edge u -> v; a walk ends at a node
    without in-edges. Source: Dwivedi, Luu, Laurent, Bengio, Bresson, "Graph Neural Networks with Learnable Structural
    and Positional Representations", ICLR 2022 (RWSE).
    """

    Config = RandomWalkConfig

    def _walks(self, graph: GraphView) -> int:
        if self.config.num_walks is not None:
            return int(self.config.num_walks)
        return 0 if "graph_offsets" in graph.entries else 64

    def _offsets(self, graph: GraphView) -> Array:
        offsets = graph.get("graph_offsets")
        return np.array([0, graph.num_nodes], np.int64) if offsets is None else offsets

    def column(self, graph: GraphView) -> Column:
        """A value a step. Raises RecipeError where the exact computation would take too long."""
        if self._walks(graph) == 0:
            offsets = self._offsets(graph)
            work = float((np.diff(offsets) * np.diff(graph["csc_indptr"][offsets])).sum()) * self.config.steps
            if work > _MAX_EXACT_STEPS:
                raise RecipeError(
                    f"preprocess.transforms: exact random_walk_pe would take {work:.1e} steps on this graph; "
                    "set num_walks=64 (or leave it out) to estimate it by walking"
                )
        return Column("random_walk_pe", "numeric", self.config.steps)

    def compute(self, graph: GraphView, first: int, last: int) -> Array:
        """Return probabilities of nodes first to last."""
        out = np.zeros((last - first, self.config.steps), np.float32)
        indptr, indices = graph["csc_indptr"], graph["csc_indices"]
        walks = self._walks(graph)
        if walks:
            sampled_returns(indptr, indices, first, walks, self.config.seed, out)
        else:
            exact_returns(indptr, indices, self._offsets(graph), first, out)
        return out
