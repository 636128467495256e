"""Skip-gram's steps in Triton, on a GPU or in the interpreter, against plain float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from models.kernels.skipgram.train_pairs import pair_loss
from models.kernels.tables.device_tables import DeviceTable
from models.kernels.tables.row_layout import Precision
from models.kernels.tables.row_tables import RowTable
from tasks.arrays import Array
from tests.kernels.plain_steps import reference_train_groups, reference_train_pairs
from tests.kernels.test_skipgram import samples, table
from tests.triton_device import DEVICE, MARKS_OF_TABLES

pytestmark = MARKS_OF_TABLES


def on_device(array: Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(DEVICE)


def train(
    vertex: RowTable, context: RowTable, pairs: Array, negatives: Array, programs: int = 1, adds: Any = None,
    **given: Any,
) -> None:  # fmt: skip
    """Train copies on the device, by one program, and take their rows back; `adds` None: as it is for such tables."""
    from models.kernels.skipgram.train_pairs_triton import Concurrency, train_pairs

    own = DeviceTable.of(vertex, DEVICE)
    others = own if context is vertex else DeviceTable.of(context, DEVICE)
    adds = vertex.precision == "float32" if adds is None else adds
    ends = on_device(pairs[..., 0]), on_device(pairs[..., 1])
    train_pairs(own, others, *ends, on_device(negatives), concurrency=Concurrency(programs, adds), **given)
    own.copy_to(vertex)
    others.copy_to(context)


def doubles(*tables: RowTable) -> list[Any]:
    return [each.read().astype(np.float64) for each in tables]


def assert_near(tables: list[RowTable], expected: list[Any], rtol: float = 1e-4, atol: float = 1e-5) -> None:
    for made, exact in zip(tables, expected, strict=True):
        np.testing.assert_allclose(made.read(), exact, rtol=rtol, atol=atol)


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize(
    ("width", "num_negatives", "group"),
    [(1, 3, 1), (2, 3, 1), (3, 5, 4), (100, 5, 1), (20, 0, 1), (7, 3, 4)],
)
def test_steps_are_those_of_the_formula(width: int, num_negatives: int, group: int, adds: bool) -> None:
    vertex, context = table(23, width, 1), table(23, width, 2)
    expected = doubles(vertex, context)
    pairs, negatives = samples(23, 30, max(1, num_negatives))
    negatives = negatives[: -(-30 // group), :num_negatives]
    options = {"rate": 0.1, "group": group, "negative_weight": 3.0}
    train(vertex, context, pairs, negatives, adds=adds, **options)
    reference_train_groups(*expected, pairs, negatives, **options)
    assert_near([vertex, context], expected)
    assert not vertex.values.reshape(23, -1)[:, width:].any()


@pytest.mark.parametrize(
    ("num_rows", "width", "rate", "adds"), [(23, 33, 0.3, True), (23, 33, 0.3, False), (9, 1030, 0.02, True)]
)
def test_a_pair_whose_rows_differ_moves_as_on_the_cpu(num_rows: int, width: int, rate: float, adds: bool) -> None:
    vertex, context = table(num_rows, width, 1), table(num_rows, width, 2)
    expected = doubles(vertex, context)
    rows = np.stack([np.random.default_rng(number).permutation(num_rows)[:6] for number in range(3 + num_rows)])
    train(vertex, context, rows[:, :2], rows[:, 2:], rate=rate, adds=adds)
    reference_train_pairs(*expected, rows[:, :2], rows[:, 2:], rate)
    assert_near([vertex, context], expected, 5e-4, 5e-4)


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("group", [1, 3])
def test_one_table_for_both_ends(group: int, adds: bool) -> None:
    """With pairs of a row with itself, and rows that are a pair's centre and negative."""
    vertex = table(12, 20, 1)
    (expected,) = doubles(vertex)
    pairs, negatives = samples(12, 30, 3)
    pairs[::6, 1] = pairs[::6, 0]
    negatives = negatives[: -(-30 // group)]
    train(vertex, vertex, pairs, negatives, rate=0.2, group=group, adds=adds)
    reference_train_groups(expected, expected, pairs, negatives, 0.2, 1.0, group)
    assert_near([vertex], [expected])


@pytest.mark.parametrize("group", [1, 4])
def test_tables_of_16_bits(group: int) -> None:
    def fresh(precision: Precision) -> list[RowTable]:
        return [table(30, 24, seed, precision) for seed in (1, 2)]

    pairs, negatives = samples(30, 12, 3)
    negatives = negatives[: -(-12 // group)]
    expected = doubles(*fresh("bfloat16"))
    reference_train_groups(*expected, pairs, negatives, 0.05, 1.0, group)
    results = []
    for noise in (7, 7, 2**62 + 1):
        tables = fresh("bfloat16")
        train(*tables, pairs, negatives, rate=0.05, group=group, noise=noise)
        assert_near(tables, expected, 0.03, 0.01)
        results.append(tables[0].read())
    assert np.array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])
    assert not tables[0].values.reshape(30, -1)[:, 24:].any()


def test_rounding_by_chance_is_exact_on_average() -> None:
    from tests.kernels.kernels_triton import put_rows

    values = torch.tensor([1.0, 1.001, -3.007, 0.0, 1e-20, torch.inf, -torch.inf, 0.3] * 4)
    out = torch.empty(1024, 32, dtype=torch.bfloat16, device=DEVICE)
    put_rows[(1,)](out, values.to(DEVICE), 2**61 + 5, ROWS=1024, WIDTH=32)
    rounded = out.cpu().double()
    for column, value in enumerate(values.tolist()):
        found = rounded[:, column].unique()
        if float(torch.tensor(value).bfloat16()) == value:
            assert found.tolist() == [value]
        else:
            assert len(found) == 2
            assert abs(rounded[:, column].mean().item() - value) < 5 * abs(found[1] - found[0]) / 2 / 1024**0.5
    halves = (rounded[:, 1::8] > 1).double()  # what rounds one column up says nothing of the others and other rows
    assert (halves.T.corrcoef() - torch.eye(4)).abs().max() < 0.17
    assert np.corrcoef(halves[1:, 0], halves[:-1, 0])[0, 1] == pytest.approx(0, abs=0.17)


def test_chunks_have_rates_and_counts_of_their_own() -> None:
    pairs, negatives = samples(40, 24, 2)
    chunks, drawn = pairs.reshape(3, 8, 2), negatives[:12].reshape(3, 4, 2)
    counts, rates = [8, 0, 5], [0.1, 0.2, 0.3]
    together, apart = ([table(40, 9, seed) for seed in (1, 2)] for _ in range(2))
    given = {"counts": torch.tensor(counts, device=DEVICE), "rate": torch.tensor(rates, device=DEVICE)}
    train(*together, chunks, drawn, group=2, **given)
    for number, count in enumerate(counts):
        train(*apart, chunks[number, :count], drawn[number, : -(-count // 2)], group=2, rate=rates[number])
    assert_near(together, doubles(*apart), 1e-6, 1e-7)


def test_no_step_is_lost_where_many_programs_add_to_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    from models.kernels.skipgram import train_pairs_triton as skipgram_triton

    monkeypatch.setattr(skipgram_triton, "_PART_PAIRS", 4)
    vertex, context = table(3, 16, 1), table(3, 16, 2)
    before = vertex.read(), context.read()
    pairs, negatives = np.zeros((80, 2), np.int32), np.ones((80, 1), np.int32)
    train(vertex, context, pairs, negatives, rate=2e-4, programs=20)
    chances = 1 / (1 + np.exp(-before[1] @ before[0][0]))
    moved = 160e-4 * (1 - chances[0]) * before[0][0]
    np.testing.assert_allclose(context.read()[0] - before[1][0], moved, rtol=0.03, atol=5e-5)
    moved = -160e-4 * chances[1] * before[0][0]
    np.testing.assert_allclose(context.read()[1] - before[1][1], moved, rtol=0.03, atol=5e-5)
    assert np.array_equal(context.read()[2], before[1][2])


def test_rows_bear_fewer_programs_that_write_than_that_add() -> None:
    from models.kernels.skipgram.train_pairs_triton import Concurrency

    def programs(num_rows: int, precision: Precision) -> int:
        made = DeviceTable.of(RowTable.zeros(num_rows, 4, precision), DEVICE)
        return Concurrency.of(made, 5).programs

    assert programs(2, "float32") > 10**9
    assert programs(2, "bfloat16") == 1
    assert programs(16 * 6 * 3, "bfloat16") == 3


def test_nothing_to_train() -> None:
    vertex, context = table(5, 4, 1), table(5, 4, 2)
    before = vertex.read()
    train(vertex, context, np.empty((0, 2), np.int32), np.empty((0, 3), np.int32), rate=0.1)
    assert np.array_equal(vertex.read(), before)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_loss_of_tables_on_a_device(precision: Precision) -> None:
    tables = [table(12, 9, seed, precision) for seed in (1, 2)]
    pairs, negatives = samples(12, 40, 3)
    given = pairs[:, 0], pairs[:, 1], negatives, 2.0
    assert pair_loss(*(DeviceTable.of(each, DEVICE) for each in tables), *given) == pair_loss(*tables, *given)
