"""Skip-gram with negative sampling: one pass over pairs that reads and changes the rows of two tables in place.

For a pair (u, v) with negatives n_1..n_K the objective is log s(U_u . C_v) + w sum_k log s(-U_u . C_{n_k}), s the
logistic function (Mikolov and others, arXiv:1310.4546, equation 4; LINE, arXiv:1503.03578, equation 7; w is 1 there and
GraphVite's negative_weight, arXiv:1903.00757). A pair's context rows move by their gradients, then the centre's row. A
row that is twice among them moves by both slopes; where rows fit into registers, the second is that of the moved row.
Threads may work on the same tables without locks (Hogwild, arXiv:1106.5730): results then differ from run to run. One
thread, or threads whose rows are disjoint, give the same bits always.

No gradient is stored: a sample costs its K + 2 rows read and written once.
"""

from __future__ import annotations

import contextlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.kernels.simd.vector import Lanes
from models.kernels.skipgram.loops import SLOTS, train_groups, train_parts, train_whole_rows
from models.kernels.tables.device_tables import DeviceTable
from models.kernels.tables.row_steps import WHOLE_ROW
from models.kernels.tables.row_tables import RowTable

_ROWS_AHEAD_FLOATS = 256
"""Pairs as many as make so many columns, and at least two: their rows are on their way meanwhile."""
_FAR_AHEAD = 6
"""Pairs, where tables are larger than the last cache: memory's latency is longer than the first level can hide."""
_USUAL_CACHE = 32 << 20


def train_pairs(
    vertex: RowTable,
    context: RowTable,
    centres: NDArray[Any],
    contexts: NDArray[Any],
    negatives: NDArray[Any],
    *,
    rate: float,
    group: int = 1,
    negative_weight: float = 1.0,
    noise: int = 1,
) -> None:
    """Take one step for each pair, or for each group of pairs, one after the other.

    Args:
        vertex: rows of centres.
        context: rows of contexts; the same table for proximity of first order.
        centres: rows of `vertex`, int32 or int64 (n,).
        contexts: rows of `context` (n,).
        negatives: rows of `context` (n, K); with `group` G (n / G rounded up, K): row g is that of pairs g G to
            (g + 1) G - 1, and its rows of `context` move once for all of them.
        rate: learning rate.
        group: pairs that share negatives: faster, as these are read once, and a little worse.
        negative_weight: w.
        noise: seed of the rounding of bfloat16 tables, above 0; another one for every call.
    """
    state = np.uint64(noise) if vertex.precision == "bfloat16" else None
    tables, pairs = (vertex.values, context.values), (centres, contexts)
    numbers = (np.float32(rate), np.float32(negative_weight), state)
    stride = vertex.stride
    ahead = max(2, _ROWS_AHEAD_FLOATS // stride)
    if group == 1 and stride <= WHOLE_ROW:
        far = _FAR_AHEAD if vertex.values.nbytes + context.values.nbytes > last_cache_bytes() else None
        train_whole_rows(Lanes(stride), stride, *tables, *pairs, negatives, *numbers, ahead, far)
        return
    lanes, slots = Lanes(min(stride & -stride, WHOLE_ROW)), negatives.shape[1] + group
    room = np.zeros(slots, np.int64), np.zeros(-(-group * slots // SLOTS.count) * SLOTS.count, np.float32)
    arguments = (lanes, SLOTS, lanes.count, stride, *tables, *pairs, negatives, *numbers)
    if group == 1:
        train_parts(*arguments, ahead, *room)
    else:
        train_groups(*arguments, *room, group, np.zeros(group * lanes.count, np.float32))


@cache
def last_cache_bytes() -> int:
    """Return the size of the processor's largest cache; 32 MiB where the machine does not tell."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    with contextlib.suppress(OSError, ValueError):
        return max((int(size.read_text().strip().removesuffix("K")) << 10 for size in sizes), default=_USUAL_CACHE)
    return _USUAL_CACHE


def pair_loss(
    vertex: RowTable | DeviceTable,
    context: RowTable | DeviceTable,
    centres: NDArray[Any],
    contexts: NDArray[Any],
    negatives: NDArray[Any],
    negative_weight: float = 1.0,
) -> float:
    """Return the mean of -log s(U_u . C_v) - w sum_k log s(-U_u . C_{n_k}) over pairs, given as to `train_pairs`."""
    centre_rows = vertex.read(centres)
    positive = np.einsum("nd,nd->n", centre_rows, context.read(contexts))
    negative = np.einsum("nd,nkd->nk", centre_rows, context.read(negatives))
    losses = np.logaddexp(0, -positive) + negative_weight * np.logaddexp(0, negative).sum(1)
    return float(losses.mean())


def reference_train_pairs(
    vertex: NDArray[np.float64],
    context: NDArray[np.float64],
    pairs: NDArray[Any],
    negatives: NDArray[Any],
    rate: float,
    negative_weight: float = 1.0,
    *,
    in_turn: bool = False,
) -> None:
    """Do what `train_pairs` does in plain float64: tables (rows, width), pairs (n, 2).

    `in_turn`: the slope of a row that is twice among a pair's contexts is taken anew after its first step.
    """
    for (u, v), others in zip(pairs, negatives, strict=True):
        rows, centre = [v, *others], vertex[u].copy()
        products = [centre @ context[row] for row in rows]
        change = np.zeros(vertex.shape[1])
        for number, row in enumerate(rows):
            chance = 1 / (1 + np.exp(-(centre @ context[row] if in_turn else products[number])))
            slope = rate * (-negative_weight * chance if number else 1 - chance)
            change += slope * context[row]
            context[row] += slope * centre
        vertex[u] += change


def reference_train_groups(
    vertex: NDArray[np.float64],
    context: NDArray[np.float64],
    pairs: NDArray[Any],
    negatives: NDArray[Any],
    rate: float,
    negative_weight: float = 1.0,
    group: int = 1,
) -> None:
    """Do what one program on a device does, in plain float64: tables (rows, width), pairs (n, 2)."""
    for low in range(0, len(pairs), group):
        others = negatives[low // group]
        rows, moved = context[others], np.zeros((len(others), vertex.shape[1]))
        for u, v in pairs[low : low + group]:
            centre, row = vertex[u].copy(), context[v].copy()
            slope = rate / (1 + np.exp(centre @ row))
            slopes = -rate * negative_weight / (1 + np.exp(-rows @ centre))
            context[v] += slope * centre
            vertex[u] += slope * row + slopes @ rows
            moved += np.outer(slopes, centre)
        np.add.at(context, others, moved)
