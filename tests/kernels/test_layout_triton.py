"""Layouts' steps in Triton, on a GPU or in the interpreter, against plain float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from configs.registry import MODELS
from models.kernels.layout.objectives import LayoutObjective
from models.kernels.layout.reference import reference_move_points
from models.kernels.tables.row_tables import RowTable
from models.vectors.base import DeviceSamples, Samples
from tasks.arrays import Array
from tests.kernels.test_layout import OBJECTIVES, fresh, samples
from tests.triton_device import DEVICE, MARKS_OF_TABLES

pytestmark = MARKS_OF_TABLES


def table(count: int, dim: int, seed: int = 1) -> RowTable:
    made = RowTable.zeros(count, dim)
    made.write(slice(None), np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32))
    return made


def on_device(array: Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(DEVICE)


def move(
    own: RowTable,
    others: RowTable,
    pairs: Array,
    negatives: Array,
    objective: LayoutObjective,
    programs: int = 1,
    **given: Any,
) -> None:
    """Move copies on the device and take their rows back."""
    from models.kernels.layout.move_points_triton import move_points
    from models.kernels.tables.device_tables import DeviceTable

    there = DeviceTable.of(own, DEVICE)
    beside = there if others is own else DeviceTable.of(others, DEVICE)
    ends = on_device(pairs[..., 0]), on_device(pairs[..., 1])
    move_points(there, beside, *ends, on_device(negatives), objective, programs=programs, **given)
    there.copy_to(own)
    if others is not own:
        beside.copy_to(others)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda one: f"{one.name}-{one.b}")
@pytest.mark.parametrize(("dim", "count", "negatives"), [(2, 51, 5), (3, 51, 5), (2, 1, 3), (2, 37, 0)])
def test_steps_are_those_of_the_formula(objective: LayoutObjective, dim: int, count: int, negatives: int) -> None:
    from models.kernels.layout.move_points_triton import reference_move_blocks

    points = table(61, dim)
    expected = points.read().astype(np.float64)
    pairs, others = samples(61, count, negatives)
    move(points, points, pairs, others, objective, rate=0.02, block=16)
    reference_move_blocks(expected, pairs, others, objective, rate=0.02, block=16)
    np.testing.assert_allclose(points.read(), expected, rtol=2e-4, atol=2e-4)
    assert not points.values.reshape(61, -1)[:, dim:].any()


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda one: f"{one.name}-{one.b}")
def test_samples_that_share_no_rows_move_as_on_the_cpu(objective: LayoutObjective) -> None:
    points = table(97, 2)
    expected = points.read().astype(np.float64)
    pairs, others = fresh(97, 13, 4)
    move(points, points, pairs, others, objective, rate=0.3, most=0.4)
    reference_move_points(expected, pairs, others, objective, rate=0.3, most=0.4)
    np.testing.assert_allclose(points.read(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("moved", [(False, False), (True, False), (False, True)])
def test_tails_and_negatives_may_stay(moved: tuple[bool, bool]) -> None:
    own, others = table(30, 3), table(140, 3, seed=2)
    expected = np.concatenate([own.read(), others.read()]).astype(np.float64)
    rng = np.random.default_rng(4)
    rows = rng.permutation(140)[:140].reshape(20, 7)[:, :6]
    pairs = np.stack([rng.permutation(30)[:20], rows[:, 0]], 1)
    stay = {"move_tails": moved[0], "move_negatives": moved[1]}
    move(own, others, pairs, rows[:, 1:], OBJECTIVES[0], rate=0.3, **stay)
    reference_move_points(expected, pairs + np.array([0, 30]), rows[:, 1:] + 30, OBJECTIVES[0], rate=0.3, **stay)
    np.testing.assert_allclose(np.concatenate([own.read(), others.read()]), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("programs", [1, 3])
def test_chunks_have_rates_and_counts_of_their_own(programs: int) -> None:
    """Two chunks that share no rows, the second one half full: as one after the other."""
    rows = np.random.default_rng(5).permutation(120).reshape(2, 15, 4)
    points = table(120, 2)
    expected = points.read().astype(np.float64)
    counts, rates = torch.tensor([15, 7], device=DEVICE), torch.tensor([0.3, 0.05], device=DEVICE)
    given = {"rate": rates, "counts": counts, "block": 4, "programs": programs}
    move(points, points, rows[..., :2], rows[..., 2:], OBJECTIVES[3], **given)
    for chunk, (count, rate) in enumerate([(15, 0.3), (7, 0.05)]):
        some = rows[chunk, :count]
        reference_move_points(expected, some[:, :2], some[:, 2:], OBJECTIVES[3], rate=rate)
    np.testing.assert_allclose(points.read(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda one: f"{one.name}-{one.b}")
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e15])
def test_equal_and_extreme_points_stay_numbers(objective: LayoutObjective, scale: float) -> None:
    points = table(31, 2)
    points.rows[:] *= np.float32(scale)
    before = points.read()
    move(points, points, *samples(31, 100, 5), objective, rate=1.0)
    assert np.isfinite(points.read()).all()
    if scale == 0:
        np.testing.assert_array_equal(points.read(), before)


@pytest.mark.parametrize(("name", "given"), [("largevis", {"gamma": 7.0, "epsilon": 0.1}), ("umap", {}), ("tsne", {})])
def test_models_learn_on_the_device_as_on_the_cpu(name: str, given: dict[str, float]) -> None:
    from models.kernels.tables.device_tables import DeviceTable

    options = MODELS.config({"name": name, "negatives": 4, **given})
    model, points = MODELS.get(name), table(97, 2)
    there = DeviceTable.of(points, DEVICE)
    pairs, others = fresh(97, 13, 4)
    cpu, device = {"points": (points, points)}, {"points": (there, there)}
    drawn = Samples(pairs[:, 0].copy(), pairs[:, 1].copy(), others)
    rows = [on_device(array)[None] for array in (drawn.centres, drawn.contexts, others)]
    chunk = DeviceSamples(*rows, torch.tensor([13], device=DEVICE))
    assert model.learns_on_device()
    model.learn_on_device(options, device, chunk, torch.tensor([0.3], device=DEVICE), 1)
    model.learn(options, cpu, drawn, 0.3, 1)
    np.testing.assert_allclose(there.read(np.arange(97)), points.read(), rtol=1e-4, atol=1e-5)
    assert model.loss(options, device, drawn) == pytest.approx(model.loss(options, cpu, drawn), rel=1e-4)


def test_no_samples() -> None:
    points = table(5, 2)
    before = points.read()
    move(points, points, np.zeros((0, 2), np.int32), np.zeros((0, 5), np.int32), OBJECTIVES[0], rate=1.0)
    np.testing.assert_array_equal(points.read(), before)
