"""Products whose numbers follow from their row and column alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812
from torch.utils._python_dispatch import _disable_current_modes

from models.kernels.dense.row_products import multiply_by_rows, rows_are_stable, stable_rows
from models.kernels.threads import kernels_alone

ROWS, WIDTHS, COLUMNS = (
    (1, 2, 37, 64, 65, 192, 256),
    (1, 3, 24, 64, 150, 255, 256, 272, 500, 602),
    (1, 3, 4, 16, 47, 136),
)


def draw(*shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32))


def rounded(value: Fraction) -> Fraction:
    """Return the float32 that is nearest: no tie is likely among drawn numbers, and none is near the least."""
    guess = np.float32(float(value))  # rounded twice: the neighbours tell
    near = (np.nextafter(guess, np.float32(end)) for end in (-np.inf, np.inf))
    return min((Fraction(float(one)) for one in (guess, *near)), key=lambda one: abs(one - value))


def test_each_number_is_a_chain_of_fused_steps() -> None:
    """What IEEE 754 says of it: no processor has a choice."""
    x, matrix, bias = draw(13, 29), draw(29, 50), draw(50)
    y = multiply_by_rows(x, matrix, bias).numpy()
    for i, j in itertools.product((0, 7, 8, 12), (0, 15, 31, 32, 49)):
        total = Fraction(float(bias[j]))
        for k in range(29):
            total = rounded(total + Fraction(float(x[i, k])) * Fraction(float(matrix[k, j])))
        assert y[i, j] == np.float32(float(total)), (i, j)


@pytest.mark.parametrize("columns", COLUMNS)
def test_rows_follow_from_no_other_row(columns: int) -> None:
    wrong = []
    for width in WIDTHS:
        x, weight, bias = draw(500, width), draw(columns, width), draw(columns)
        functions: dict[str, Callable[[Tensor], Tensor]] = {
            "linear": lambda rows: F.linear(rows, weight, bias),  # noqa: B023
            "bfloat16": lambda rows: F.linear(rows.bfloat16(), weight.bfloat16()),  # noqa: B023
            "view": lambda rows: (weight @ rows.t()).t(),  # noqa: B023
            "heads": lambda rows: torch.einsum("nd,hdm->nhm", rows, torch.stack([weight.t(), weight.t()])),  # noqa: B023
        }
        with torch.no_grad(), stable_rows():
            for name, function in functions.items():
                whole = function(x)
                for count in ROWS:
                    start = 500 - count if count % 2 else 64
                    if not torch.equal(function(x[start : start + count]), whole[start : start + count]):
                        wrong.append((name, width, count))
    assert not wrong


@pytest.mark.parametrize(("n", "k", "m"), [(0, 4, 3), (5, 0, 3), (5, 4, 0), (1, 1, 1), (7, 33, 47), (300, 100, 128)])
def test_whoever_asks_torch_for_a_product(n: int, k: int, m: int) -> None:
    x, matrix, start, wide = draw(n, k), draw(k, m), draw(m), draw(n, m)
    several, matrices = x.expand(3, n, k), matrix.expand(3, k, m)
    products: list[Callable[[], Tensor]] = [
        lambda: x @ matrix,
        lambda: several @ matrices,
        lambda: torch.addmm(start, x, matrix),
        lambda: torch.addmm(wide, x, matrix, alpha=2, beta=0.5),
        lambda: torch.addmm(wide, x, matrix, beta=0),
        lambda: torch.addmm(wide.t().contiguous().t(), x, matrix),
        lambda: wide.clone().addmm_(x, matrix),
        lambda: torch.mm(x, matrix, out=torch.empty(n, m)),
        lambda: torch.mm(x, matrix, out=torch.empty(m, n).t()),
        lambda: torch.baddbmm(wide, several, matrices, alpha=0.5),
        lambda: wide.expand(3, n, m).clone().baddbmm_(several, matrices),
        lambda: x @ draw(k),
        lambda: torch.addmv(draw(n), x, draw(k)),
        lambda: x.bfloat16() @ matrix.bfloat16(),
        lambda: x.double() @ matrix.double(),
        lambda: F.linear(several, matrix.t(), start),
    ]
    with torch.no_grad(), stable_rows():
        for number, product in enumerate(products):
            found = product()
            rtol = 1.6e-2 if found.dtype == torch.bfloat16 else 1e-4
            with _disable_current_modes():  # type: ignore[no-untyped-call]
                by_torch = product()
            torch.testing.assert_close(found, by_torch, rtol=rtol, atol=1e-4, msg=lambda text, i=number: f"{i}: {text}")


def test_threads_do_not_matter_and_it_ends() -> None:
    x, matrix = draw(1000, 100), draw(100, 40)
    with kernels_alone():
        alone = multiply_by_rows(x, matrix)
    torch.set_num_threads(3)
    assert torch.equal(multiply_by_rows(x, matrix), alone)
    with torch.no_grad(), stable_rows():
        assert rows_are_stable()
        assert torch.equal(torch.mm(x, matrix), alone)
    assert not rows_are_stable()
