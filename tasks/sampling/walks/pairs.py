"""Pairs of nodes that are near each other on walks: the positive samples of skip-gram."""

from __future__ import annotations

import numpy as np
from numba import njit

from tasks.arrays import Array
from tasks.sampling.neighborhoods.fast_random import STEP, below, stream


def most_pairs(length: int, window: int, forward: bool) -> int:
    """Return how many pairs a walk of `length` nodes has at most."""
    near = min(window, length - 1)
    return (near * length - near * (near + 1) // 2) * (1 if forward else 2)


def expected_pairs(length: int, window: int, forward: bool, shrink: bool) -> float:
    """Return how many pairs a walk has on average, where it nowhere begins anew."""
    ways = 1 if forward else 2
    chance = [(window - distance + 1) / window if shrink else 1.0 for distance in range(1, window + 1)]
    return ways * sum(share * max(length - distance, 0) for distance, share in enumerate(chance, start=1))


def walk_pairs(tokens: Array, window: int, *, forward: bool, shrink: bool, key: int, first: int) -> tuple[Array, Array]:
    """Return the pairs of walks: centres and contexts, (n,) each, of the dtype of `tokens`.

    Args:
        tokens: (walks, length), as `Walks.fill` writes them.
        window: a pair's nodes are 1 to `window` steps apart.
        forward: contexts come after the centre only; else before it as well.
        shrink: every centre draws a window of its own from 1..window, as in word2vec: near contexts are taken more
            often; else all within the window.
        key: of those draws.
        first: number of the first walk.
    """
    room = len(tokens) * most_pairs(tokens.shape[1], window, forward)
    centres, contexts = np.empty(room, tokens.dtype), np.empty(room, tokens.dtype)
    count = fill_pairs(tokens, window, forward, shrink, key, first, centres, contexts)
    return centres[:count], contexts[:count]


@njit(cache=True, nogil=True)
def fill_pairs(tokens, window, forward, shrink, key, first, centres, contexts):  # type: ignore[no-untyped-def]
    """Do what `walk_pairs` does, into arrays with room for `most_pairs` of every walk; return their number."""
    length = tokens.shape[1]
    n = 0
    for row in range(len(tokens)):
        state = stream(key, first + row)
        begin = 0  # of the walk that the centre is on
        for i in range(length):
            node = tokens[row, i]
            if node < 0:
                node, begin = ~node, i
            reach = window
            if shrink:
                state += STEP
                reach = 1 + below(state, window)
            if not forward:
                for j in range(max(begin, i - reach), i):
                    centres[n] = node
                    contexts[n] = tokens[row, j] if tokens[row, j] >= 0 else ~tokens[row, j]
                    n += 1
            for j in range(i + 1, min(i + reach + 1, length)):
                if tokens[row, j] < 0:
                    break
                centres[n] = node
                contexts[n] = tokens[row, j]
                n += 1
    return n
