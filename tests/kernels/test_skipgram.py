"""Skip-gram's steps on tables of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from models.kernels.simd.vector import WIDEST
from models.kernels.skipgram import train_pairs as skipgram
from models.kernels.skipgram.train_pairs import pair_loss, train_pairs
from models.kernels.tables.row_layout import Precision, UpdateRule, row_bytes, row_stride
from models.kernels.tables.row_steps import WHOLE_ROW
from models.kernels.tables.row_tables import RowTable
from tasks.arrays import Array
from tests.kernels.plain_steps import reference_train_pairs

NARROW = [pytest.param(width, marks=pytest.mark.slow) for width in (2, 3, 4)]
"""Rows of layouts and a wider one: compiled for lanes of their own."""


def table(num_rows: int, width: int, seed: int, precision: Precision = "float32") -> RowTable:
    made = RowTable.zeros(num_rows, width, precision)
    made.write(slice(None), np.random.default_rng(seed).normal(size=(num_rows, width)).astype(np.float32) / 4)
    return made


def samples(num_rows: int, count: int, negatives: int, seed: int = 3) -> tuple[Array, Array]:
    """Pairs and negatives with repeated rows, some within a pair."""
    rng = np.random.default_rng(seed)
    pairs, others = rng.integers(num_rows, size=(count, 2)), rng.integers(num_rows, size=(count, negatives))
    pairs[: count // 5, 1] = others[: count // 5, 0]
    others[: count // 7, -1] = pairs[: count // 7, 0]
    return pairs.astype(np.int32), others.astype(np.int32)


def check_steps(
    vertex: RowTable, context: RowTable, pairs: Array, negatives: Array, tolerance: float = 2e-4, **options: Any
) -> None:
    expected = vertex.read().astype(np.float64), context.read().astype(np.float64)
    rate, weight, group = options["rate"], options.get("negative_weight", 1.0), options.get("group", 1)
    train_pairs(vertex, context, pairs[:, 0], pairs[:, 1], negatives, **options)
    first, second = expected[0], expected[0] if context is vertex else expected[1]
    alone = np.repeat(negatives, group, 0)[: len(pairs)]
    reference_train_pairs(first, second, pairs, alone, rate, weight, in_turn=group == 1 and vertex.stride <= WHOLE_ROW)
    np.testing.assert_allclose(vertex.read(), first, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(context.read(), second, rtol=tolerance, atol=tolerance)
    assert not vertex.values.reshape(vertex.num_rows, -1)[:, vertex.width :].any()


@pytest.mark.parametrize("width", [1, *NARROW, 7, 16, 33, 100, 128, 200, WIDEST + 9])
@pytest.mark.parametrize("weight", [1.0, 5.0])
def test_steps_are_those_of_the_formula(width: int, weight: float) -> None:
    """A row that is twice among a pair's contexts is read again after its first step, where rows fit into registers."""
    tables = (table(23, width, seed) for seed in (1, 2))
    check_steps(*tables, *samples(23, 150, 3), rate=0.3 / weight, negative_weight=weight)


def test_one_table_for_both_ends() -> None:
    vertex = table(40, 20, 1)
    pairs, negatives = samples(40, 200, 4)
    others = (pairs[:, 1] != pairs[:, 0]) & (negatives != pairs[:, :1]).all(1)  # a row is read before it is moved
    check_steps(vertex, vertex, pairs[others], negatives[others], 1e-4, rate=0.1)


def test_rows_asked_for_far_ahead_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, negatives = samples(40, 200, 4)
    results = []
    for cache in (1 << 30, 0):
        monkeypatch.setattr(skipgram, "last_cache_bytes", lambda cache=cache: cache)
        vertex, context = table(40, 20, 1), table(40, 20, 2)
        train_pairs(vertex, context, pairs[:, 0], pairs[:, 1], negatives, rate=0.1)
        results.append(vertex.read())
    assert np.array_equal(*results)


@pytest.mark.parametrize("width", [16, 200])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_that_are_none_pass(width: int, number: float) -> None:
    """A training that diverges says so: it neither hides NaN nor reads beside the table of chances."""
    vertex, context = table(10, width, 1), table(10, width, 2)
    vertex.write(slice(0, 5), np.full((5, width), number, np.float32))
    pairs, negatives = samples(10, 200, 3)
    train_pairs(vertex, context, pairs[:, 0], pairs[:, 1], negatives, rate=0.1)
    assert np.isnan(vertex.read()).any()


@pytest.mark.parametrize("num_negatives", [0, 1])
def test_few_negatives_and_no_pairs(num_negatives: int) -> None:
    vertex, context = table(10, 8, 1), table(10, 8, 2)
    before = vertex.read()
    pairs, negatives = samples(10, 30, 1)
    train_pairs(vertex, context, pairs[:0, 0], pairs[:0, 1], negatives[:0], rate=0.1)
    assert np.array_equal(vertex.read(), before)
    check_steps(vertex, context, pairs, negatives[:, :num_negatives], 1e-5, rate=0.1)


@pytest.mark.parametrize("width", [20, WIDEST + 1])
def test_negatives_shared_by_pairs(width: int) -> None:
    """Where all rows of a group differ, taking its pairs one by one comes to the same up to the order of steps."""
    order = np.random.default_rng(0).permutation(64).astype(np.int32)
    pairs, negatives = np.stack([order[:10], order[10:20]], 1), order[20:29].reshape(3, 3)
    check_steps(table(64, width, 1), table(64, width, 2), pairs, negatives, 1e-4, rate=1e-3, group=4)


def test_small_changes_reach_tables_of_16_bits() -> None:
    """A thousand steps that each are far below bfloat16's resolution add up to what float32 makes of them."""
    exact, rough = ([table(8, 33, seed, precision) for seed in (1, 2)] for precision in ("float32", "bfloat16"))
    pairs, negatives = samples(8, 1000, 2)
    before = exact[0].read()
    for tables in (exact, rough):
        for step in range(5):
            train_pairs(*tables, pairs[:, 0], pairs[:, 1], negatives, rate=1e-4, noise=step + 1)
    moved, rounded = exact[0].read() - before, rough[0].read() - before
    slope = float((moved * rounded).sum() / (moved**2).sum())
    assert slope == pytest.approx(1, abs=0.1)
    assert np.abs(rounded - moved).mean() < 0.01


def test_rounding_by_chance_is_exact_on_average() -> None:
    """Rows that are written over and over, without a change, stay; the noise of two calls differs."""
    vertex, context = table(50, 64, 1, "bfloat16"), table(50, 64, 2, "bfloat16")
    before = vertex.read()
    pairs, negatives = samples(50, 500, 2)
    train_pairs(vertex, context, pairs[:, 0], pairs[:, 1], negatives, rate=0.0)
    assert np.array_equal(vertex.read(), before)
    results = []
    for noise in (1, 1, 2):
        vertex, context = table(50, 64, 1, "bfloat16"), table(50, 64, 2, "bfloat16")
        train_pairs(vertex, context, pairs[:, 0], pairs[:, 1], negatives, rate=0.01, noise=noise)
        results.append(vertex.read())
    assert np.array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])


def test_loss_is_that_of_the_formula() -> None:
    vertex, context = table(12, 9, 1), table(12, 9, 2)
    pairs, negatives = samples(12, 40, 3)
    u, v = torch.from_numpy(vertex.read()), torch.from_numpy(context.read())
    positive = torch.nn.functional.logsigmoid((u[pairs[:, 0]] * v[pairs[:, 1]]).sum(1))
    negative = torch.nn.functional.logsigmoid(-(u[pairs[:, 0], None] * v[negatives]).sum(2)).sum(1)
    expected = -(positive + 5 * negative).mean().item()
    assert pair_loss(vertex, context, pairs[:, 0], pairs[:, 1], negatives, 5.0) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_rows_begin_at_cache_lines_which_points_of_layouts_share(precision: Precision) -> None:
    for width in (1, 16, 33, 100, 128, 257, 1000):
        made = RowTable.zeros(5, width, precision)
        assert made.stride * made.values.itemsize % 64 == 0
        assert made.stride >= width
        assert made.values.ctypes.data % 64 == 0
    assert [row_stride(width) for width in (128, 4, 3, 2, 1)] == [128, 16, 4, 2, 16]
    assert row_stride(2, "bfloat16") == 32
    made = RowTable.zeros(100, 3, rule=UpdateRule("momentum"))
    assert made.values.size == made.moment.size == 400
    assert made.values.nbytes == 100 * row_bytes(3, "float32", UpdateRule())


def test_first_rows() -> None:
    made, other = RowTable.zeros(9000, 5), RowTable.zeros(9000, 5)
    made.set_uniform(7)
    other.set_uniform(8)
    assert np.abs(made.read()).max() <= 0.1
    assert np.abs(made.read().mean()) < 1e-3
    assert len(np.unique(np.concatenate([made.read(), other.read()]))) > 80_000
