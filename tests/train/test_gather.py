"""Gathered rows and means against NumPy; memory that batches pass on."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import DataError
from models.kernels.memory import _SPARE_BYTES, Recycler, empty, recycled
from models.kernels.tables.byte_rows import SCALE_BYTES
from tasks.sampling.rows import features as features_module
from tasks.sampling.rows.features import FeatureSource, bfloat16_copy, stored_rows, take_rows
from tasks.sampling.rows.gather import gather_mean, gather_rows

MIB = 1 << 20


def table_of(kind: str, rows: int, width: int) -> tuple[np.ndarray, torch.Tensor]:
    """A table as it is stored, and what it says in float32."""
    x = torch.from_numpy(np.random.default_rng(width).standard_normal((rows, width)).astype(np.float32))
    if kind == "bfloat16":
        return x.bfloat16().view(torch.uint16).numpy(), x.bfloat16().float()
    stored = x.numpy().astype(kind)
    stored.flags.writeable = False  # as memory maps are
    return stored, torch.from_numpy(stored.astype(np.float32))


CASES = pytest.mark.parametrize(  # each compiles
    ("kind", "width", "dtype"),
    [
        ("float32", 1, torch.float32),
        ("float32", 7, torch.bfloat16),
        ("float32", 100, torch.float32),
        ("float32", 300, torch.float32),
        ("float16", 7, torch.float32),
        ("bfloat16", 100, torch.bfloat16),
    ],
)


@CASES
def test_rows(kind: str, width: int, dtype: torch.dtype) -> None:
    table, x = table_of(kind, 40, width)
    rows = np.random.default_rng(0).integers(0, 40, 57).astype(np.int32)
    assert torch.equal(gather_rows(table, rows, dtype), x[rows].to(dtype))
    assert gather_rows(table, rows[:0], dtype).shape == (0, width)


def plain_mean(x: torch.Tensor, indptr: np.ndarray, ids: np.ndarray) -> torch.Tensor:
    rows = torch.repeat_interleave(torch.from_numpy(np.diff(indptr)))
    total = torch.zeros(len(indptr) - 1, x.shape[1], dtype=torch.float64).index_add(0, rows, x[ids].double())
    return total / torch.from_numpy(np.diff(indptr)).clamp(min=1).unsqueeze(1)


@CASES
def test_means_and_rows_in_one_pass(kind: str, width: int, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(1)
    table, x = table_of(kind, 50, width)
    nodes = rng.permutation(50)[:23].astype(np.int32)
    counts = rng.integers(0, 6, 23)  # destinations without edges are among them
    counts[[0, 22]] = 0, 40
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    ids = rng.integers(0, 50, indptr[-1]).astype(np.int32)
    own, mean = gather_mean(table, nodes, indptr, ids, dtype)
    rounded = x.to(dtype).float()  # rows are rounded before they are added, not only their mean
    assert torch.equal(own, rounded[nodes].to(dtype))
    rtol = 1e-5 if dtype == torch.float32 else 2**-8
    torch.testing.assert_close(mean.double(), plain_mean(rounded, indptr, ids), rtol=rtol, atol=1e-6)
    assert not mean[0].any()
    own, mean = gather_mean(table, nodes[:0], indptr[:1], ids[:0], dtype)
    assert own.shape == mean.shape == (0, width)


def test_large_results_are_whole() -> None:
    """They are written past the caches where rows are whole lines."""
    x = torch.arange(64 * 32, dtype=torch.float32).view(64, 32)
    rows = np.random.default_rng(0).integers(0, 64, 40_000).astype(np.int32)
    assert torch.equal(gather_rows(x.numpy(), rows, torch.float32), x[rows])
    indptr, ids = np.arange(40_001) // 2, rows[:20_000]
    own, mean = gather_mean(x.numpy(), rows, indptr, ids, torch.float32)
    assert torch.equal(own, x[rows])
    assert torch.equal(mean[1::2], x[ids])
    assert not mean[::2].any()


def test_values_that_are_no_numbers_pass() -> None:
    table = np.array([[np.nan, 1.0], [np.inf, 2.0], [0.0, 3.0]], np.float32)
    indptr, ids = np.array([0, 2, 3]), np.array([0, 1, 2], np.int32)
    for dtype in (torch.float32, torch.bfloat16):
        own, mean = gather_mean(table, np.array([1, 0], np.int32), indptr, ids, dtype)
        assert own[:, 0].isinf().tolist() == [True, False]
        assert own[:, 0].isnan().tolist() == mean[:, 0].isnan().tolist()[::-1] == [False, True]
        assert mean[:, 1].tolist() == [1.5, 3.0]


def test_a_copy_in_memory_changes_nothing_but_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    feat = np.random.default_rng(0).standard_normal((70_000, 7)).astype(np.float32)
    feat.flags.writeable = False
    nodes, indptr = np.array([3, 69_999], np.int32), np.array([0, 3, 4])
    ids = np.array([0, 65_536, 9, 66_000], np.int32)
    copied = FeatureSource(feat, None, dtype=torch.bfloat16)
    assert copied.table.dtype == np.uint16

    class Memory:
        available = 8 * feat.size - 1  # the copy would take 2 bytes for each number, a quarter and a little

    monkeypatch.setattr(features_module, "available_bytes", lambda: Memory.available)
    assert bfloat16_copy(feat) is feat
    Memory.available += 1
    assert bfloat16_copy(feat) is not feat
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    straight = FeatureSource(feat, None, dtype=torch.bfloat16)
    assert straight.table is feat
    for a, b in zip(
        (copied.inputs(nodes).feat, copied.inputs_and_mean(nodes, indptr, ids)[1]),
        (straight.inputs(nodes).feat, straight.inputs_and_mean(nodes, indptr, ids)[1]),
        strict=True,
    ):
        assert a.dtype == torch.bfloat16
        assert torch.equal(a, b)


def test_tables_of_other_shapes_and_kinds() -> None:
    rows = np.array([2, 0, 2])
    assert take_rows(None, rows, np.float32) is None
    for table, kind in (
        (np.arange(12, dtype=np.int32).reshape(3, 4), np.int64),
        (np.arange(3, dtype=np.int16), np.int64),
        (np.broadcast_to(np.int16(0), (3,)), np.int64),
        (np.arange(3, dtype=np.float32), np.float32),
    ):
        taken = take_rows(table, rows, kind)
        assert taken.numpy().dtype == kind
        assert np.array_equal(taken.numpy(), table[rows])


# ---- recycled memory


def test_memory_comes_back_when_nobody_looks_at_it_any_more() -> None:
    pool = Recycler()
    first = pool.empty((MIB, 2), np.float32)
    place = first.ctypes.data
    view: Any = torch.from_numpy(first)[5:9].view(torch.int32)[1:]
    del first
    gc.collect()
    others = [pool.empty((MIB, 2), np.float32)]
    assert others[0].ctypes.data != place  # a part of it is still in use
    view.fill_(7)
    rest = view.numpy()[1:]
    del view
    gc.collect()
    others.append(pool.empty(2 * MIB, np.int32))
    assert others[1].ctypes.data != place
    del rest
    gc.collect()
    again = pool.empty(2 * MIB - 1000, np.int32)
    assert again.ctypes.data == place
    assert again.flags.writeable


def test_sizes_that_vary_reuse_what_there_is_and_idle_memory_is_bounded() -> None:
    pool = Recycler()
    rng = np.random.default_rng(0)
    places = set()
    for _ in range(60):
        array = pool.empty(int(4 * MIB * rng.uniform(0.95, 1.05)), np.uint8)
        places.add(array.ctypes.data)
        del array
    assert len(places) <= 2
    for size in range(1, 60):
        pool.empty(size * 8 * MIB, np.uint8)  # mapped, not touched
    kept = pool.empty(MIB, np.uint8)
    assert sum(map(len, pool._idle)) <= pool._peak_bytes + _SPARE_BYTES
    assert pool._total_bytes == sum(map(len, pool._idle)) + 9 * kept.nbytes // 8


@pytest.mark.parametrize("size", [MIB // 4, int(1.9 * MIB), 2 * MIB - 1, 2 * MIB, int(3.7 * MIB)])
def test_the_same_size_again_takes_the_same_memory(size: int) -> None:
    pool = Recycler()
    first = pool.empty(size, np.uint8)
    place = first.ctypes.data
    del first
    gc.collect()
    assert pool.empty(size, np.uint8).ctypes.data == place


def test_small_and_empty_arrays() -> None:
    assert recycled(0, np.int64).shape == (0,)
    assert recycled((3, 0), np.float32).shape == (3, 0)
    assert recycled((3, 5), np.uint16).shape == (3, 5)


def test_threads_never_get_the_same_memory() -> None:
    pool = Recycler()

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        for _ in range(200):
            array = pool.empty(int(rng.integers(MIB // 4, MIB // 2)), np.uint8)
            array[::4096] = number
            assert (array[::4096] == number).all()
            del array

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensors_in_recycled_memory_may_be_written_over(dtype: torch.dtype) -> None:
    x = torch.ones(300, 500, requires_grad=True)
    tensor = empty((300, 500), dtype)
    assert tensor.shape == (300, 500)
    assert tensor.dtype == dtype
    assert not tensor._is_view()
    tensor.fill_(2)
    (tensor * x).sum().backward()
    assert torch.equal(x.grad, torch.full((300, 500), 2.0))


@pytest.mark.parametrize("width", [1, 7, 100, 300])
@pytest.mark.parametrize("kind", ["stored", "float16", "bfloat16", "int8"])
def test_rows_of_two_tables(kind: Any, width: int) -> None:
    rng = np.random.default_rng(width)
    x, y = (rng.standard_normal((count, width)).astype(np.float32) for count in (50, 20))
    x[3] = 0
    table, extra = stored_rows(x, kind), stored_rows(y, kind)
    rows = rng.integers(-20, 50, 131).astype(np.int32)
    plain = [gather_rows(some, np.arange(len(some)), torch.float32) for some in (table, extra)]
    here, there = plain[0][np.maximum(rows, 0)], plain[1][np.maximum(~rows, 0)]
    expected = torch.where(torch.from_numpy(rows[:, None] >= 0), here, there)
    assert torch.equal(gather_rows(table, rows, torch.float32, extra), expected)
    steps = {"stored": 0, "float16": 2**-11, "bfloat16": 2**-8, "int8": 0.51 / 127}[kind]
    assert ((plain[0] - torch.from_numpy(x)).abs() <= steps * torch.from_numpy(x).abs().amax(1, keepdim=True)).all()
    if kind == "int8":
        scale = np.ascontiguousarray(table[:, -SCALE_BYTES:]).view(np.float32)
        assert np.array_equal(plain[0].numpy(), table[:, :-SCALE_BYTES].astype(np.float32) * scale)
    indptr = np.array([0, 0, 60, 131])
    nodes = np.array([-3, 4, 0], np.int32)
    own, mean = gather_mean(table, nodes, indptr, rows, torch.float32, extra)
    assert torch.equal(own, torch.stack([plain[1][2], plain[0][4], plain[0][0]]))
    assert torch.equal(mean, gather_mean(expected.numpy(), np.arange(3), indptr, np.arange(131), torch.float32)[1])


def test_rows_without_steps_are_refused() -> None:
    with pytest.raises(DataError, match=r"NaN or infinite.*take rows=bfloat16"):
        stored_rows(np.array([[1.0, np.nan]], np.float32), "int8")
