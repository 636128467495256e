"""Vectors in numba: loads, stores, rounding, arithmetic, and that processes find each other's compiled kernels."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import pytest
import torch
from numba import njit
from numba.core.dispatcher import Dispatcher

from models import kernels
from models.kernels.simd.exponentials import exp, log
from models.kernels.simd.vector import (
    STREAMED_BYTES,
    WIDEST,
    Lanes,
    is_streamed,
    load,
    maximum,
    minimum,
    prefetch_item,
    splat,
    storage,
    store,
    tiles,
    total,
    where_positive,
    zeros,
)
from models.kernels.sparse.product import sum_rows

SPECIAL = [0.0, -0.0, 1.0, -1.5, torch.inf, -torch.inf, torch.nan, 1e-40, 3e38, 1.00390625, 1.01171875]
"""The last two lie halfway between two bfloat16 numbers."""


@njit
def copy(lanes, count, x, y):  # type: ignore[no-untyped-def]
    prefetch_item(x, count)
    store(lanes, y, 0, load(lanes, x, 0, count), count)


@njit
def compute(lanes, count, a, b, y):  # type: ignore[no-untyped-def]
    p, q, two = load(lanes, a, 0, count), load(lanes, b, 0, count), np.float32(2)
    results = (p + q, p - two, two * q, p / q, maximum(p, q), minimum(p, two), where_positive(p, q), zeros(lanes))
    place = 0
    for value in results:
        store(lanes, y, place, value, count)
        place += count
    store(lanes, y, place, splat(lanes, total(p)), count)


@njit
def powers(lanes, count, a, y):  # type: ignore[no-untyped-def]
    value = load(lanes, a, 0, count)
    store(lanes, y, 0, exp(value), count)
    store(lanes, y, count, log(exp(value)), count)


@pytest.mark.parametrize("lanes", [Lanes(16), Lanes(16, partly=True), Lanes(16, streaming=True)])
@pytest.mark.parametrize("kinds", [("float32", "float32"), ("bfloat16", "float32"), ("float32", "bfloat16")])
def test_loads_and_stores(lanes: Lanes, kinds: tuple[str, str]) -> None:
    count = 11 if lanes.partly else 16
    x = torch.tensor([*SPECIAL, *range(5)], dtype=getattr(torch, kinds[0]))
    y = torch.full((64,), 7.0, dtype=getattr(torch, kinds[1]))
    copy(lanes, count, storage(x), storage(y))
    torch.testing.assert_close(y[:count], x[:count].to(y.dtype), rtol=0, atol=0, equal_nan=True)
    assert bool((y[count:] == 7).all())


@pytest.mark.parametrize("width", [1, 16, 17])
def test_arithmetic(width: int) -> None:
    generator = torch.Generator().manual_seed(1)
    a, b = torch.randn(2, width, generator=generator)
    y = torch.empty(9, width)
    ((_, lanes, count),) = tiles(width)
    compute(lanes, count, storage(a), storage(b), storage(y))
    expected = (
        a + b,
        a - 2,
        2 * b,
        a / b,
        torch.maximum(a, b),
        a.clamp(max=2),
        b * (a > 0),
        0 * a,
        a.sum().expand(width),
    )
    torch.testing.assert_close(y, torch.stack(expected))


def test_exponentials_and_logarithms() -> None:
    for limit, rtol in ((20, 1.5e-6), (80, 6e-6)):  # x / log(2) has 24 bits, whole and fraction together
        x = torch.linspace(-limit, limit, 256)
        y = torch.empty(2, 256)
        powers(Lanes(256), 256, storage(x), storage(y))
        torch.testing.assert_close(y[0].double(), x.double().exp(), rtol=rtol, atol=0)
        torch.testing.assert_close(y[1], x, rtol=1e-6, atol=1e-5)


def test_tiles_cover_all_columns() -> None:
    for width in (0, 1, 16, 100, WIDEST, WIDEST + 1, 3 * WIDEST + 40):
        cut = tiles(width)
        assert [column for column, _, _ in cut] == list(np.cumsum([0, *(count for _, _, count in cut)])[:-1])
        assert sum(count for _, _, count in cut) == width
        assert all(lanes.partly == (count < lanes.count) for _, lanes, count in cut)
        assert all(lanes.count <= 64 for _, lanes, _ in tiles(width, widest=64))


def test_only_large_results_of_whole_lines_bypass_the_caches() -> None:
    rows = STREAMED_BYTES // 256
    assert is_streamed(torch.empty(rows, 64))
    assert not is_streamed(torch.empty(rows - 1, 64))
    assert not is_streamed(torch.empty(rows, 65))


def test_other_processes_find_compiled_kernels() -> None:
    """numba keys a closure by a pickle of what it closes over, and that of an intrinsic is another in each process."""
    every = pkgutil.walk_packages(kernels.__path__, "models.kernels.")
    modules = [importlib.import_module(name) for _, name, _ in every if not name.endswith("_triton")]
    compiled = [value for module in modules for value in vars(module).values() if isinstance(value, Dispatcher)]
    assert sum_rows in compiled
    assert [kernel.py_func.__qualname__ for kernel in compiled if kernel.py_func.__closure__] == []
