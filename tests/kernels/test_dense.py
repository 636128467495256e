"""The linear map through either library."""

from __future__ import annotations

import pytest
import torch

from models.kernels.dense import products
from models.kernels.dense.linear import Linear, linear
from tests.kernels.graphs import assert_threads_do_not_matter, compare, numbers


@pytest.fixture(autouse=True, params=["bfloat16", "float32"])
def _through_onednn(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Also on machines whose products go through MKL; but not where oneDNN would round to bfloat16.

    bfloat16 is multiplied as it is, and in float32.
    """
    if torch.cpu._is_amx_tile_supported():
        pytest.skip("this processor has AMX: the setting would round")
    monkeypatch.setattr(products, "_PREFERS_ONEDNN", True)
    monkeypatch.setattr(products, "_MULTIPLIES_BFLOAT16", request.param == "bfloat16")
    monkeypatch.setattr("models.kernels.dense.linear._LEAST_PRODUCTS", 1)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("rows", "columns", "out"), [(1, 3, 2), (64, 1, 1), (133, 100, 47), (2700, 256, 128), (105, 300, 1)]
)
def test_values_and_gradients(rows: int, columns: int, out: int, kind: torch.dtype) -> None:
    x, weight = numbers(rows, columns, dtype=kind), numbers(out, columns, seed=2, dtype=kind)
    slack = 1.0 if kind == torch.float32 else 2.0
    compare(linear, torch.nn.functional.linear, x, weight, numbers(out, seed=3, dtype=kind), slack=slack)
    compare(lambda x, w: linear(x, w), torch.nn.functional.linear, x, weight, slack=slack)
    assert kind != torch.float32 or rows == 1 or linear(x, weight).grad_fn.name() == "_LinearBackward"


def test_autocast_keeps_gradients_of_weights_in_float32() -> None:
    x, weight, bias = numbers(200, 30), numbers(20, 30, seed=2), numbers(20, seed=3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = linear(x, weight, bias)
    y.float().sum().backward()
    assert y.grad_fn.name() == "_LinearBackward"
    rounded = x.detach().to(torch.bfloat16).float()
    torch.testing.assert_close(weight.grad, rounded.sum(0).expand(20, 30), rtol=1e-2, atol=0.2)
    assert weight.grad.dtype == torch.float32


def test_bfloat16_multiplied_in_float32_is_rounded_at_the_end_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_MULTIPLIES_BFLOAT16", False)
    weight, bias = numbers(20, 300, seed=2), numbers(20, seed=3)
    for rows in (1, 70, 2500):
        x = numbers(rows, 300, dtype=torch.bfloat16)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = linear(x, weight, bias)
        exact = torch.nn.functional.linear(x.float(), weight, bias).detach()
        assert y.dtype == torch.bfloat16
        # A sum that is rounded twice, or a weight that is rounded, is off by more than half a unit in the last place.
        assert float((y.detach().float() - exact).abs().div(exact.abs() + 1e-3).max()) <= 2**-8


@pytest.mark.parametrize("count", [0, 1, 1023, 2047, 2048, 5000, 20_001])
def test_pieces_in_float32_are_even(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_MULTIPLIES_BFLOAT16", False)
    rows = torch.empty(count, 1, dtype=torch.bfloat16)
    for size in (1, 1000, 4096):
        bounds, rest = products._pieces(rows, size)
        edges = [*bounds, rest]
        assert [low for low, _ in edges] == [0, *(high for _, high in edges[:-1])]
        assert edges[-1][1] == count
        assert all(high - low >= 1024 for low, high in bounds)
        assert len(bounds) == 0 or rest == (count, count)
        parts = min(-(-count // size), count // 1024)
        assert len(bounds) == (parts if parts > 1 else 0)


def test_operands_that_are_not_contiguous() -> None:
    compare(lambda x, w: linear(x.t(), w.t()), lambda x, w: x.t() @ w, numbers(7, 80), numbers(7, 9, seed=2))


def test_settings_stay_as_they_were_with_several_threads_inside() -> None:
    """The first to leave must not restore it under the others, nor one of them what another had set."""
    before = torch.backends.mkldnn.matmul.fp32_precision
    linear(numbers(70, 4), numbers(4, 4)).sum().backward()
    assert torch.backends.mkldnn.matmul.fp32_precision == before
    first, second = (products._float32_by_onednn(numbers(70, 4)) for _ in range(2))
    with first:
        second.__enter__()
        within = torch.backends.mkldnn.matmul.fp32_precision
    assert torch.backends.mkldnn.matmul.fp32_precision == within != before
    second.__exit__(None, None, None)
    assert torch.backends.mkldnn.matmul.fp32_precision == before


def test_other_inputs_go_through_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = numbers(5, 7)
    assert linear(numbers(0, 7), weight).shape == (0, 5)
    assert linear(numbers(2, 3, 7), weight).shape == (2, 3, 5)
    assert linear(numbers(3, 7).double(), weight.double()).dtype == torch.float64
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(numbers(3, 7), weight).dtype == torch.bfloat16
    assert linear(numbers(63, 7), weight).grad_fn.name() != "_LinearBackward"
    monkeypatch.setattr(products, "_MULTIPLIES_BFLOAT16", True)
    few = numbers(63, 7, dtype=torch.bfloat16), weight.to(torch.bfloat16)
    assert linear(*few).grad_fn.name() != "_LinearBackward"
    monkeypatch.setattr(products, "_MULTIPLIES_BFLOAT16", False)
    assert linear(*few).grad_fn.name() == "_LinearBackward"
    monkeypatch.setattr("models.kernels.dense.linear._LEAST_PRODUCTS", 64 * 7 * 5 + 1)
    assert linear(numbers(64, 7), weight).grad_fn.name() != "_LinearBackward"


def test_the_module_is_nn_linear() -> None:
    ours, theirs = Linear(7, 5), torch.nn.Linear(7, 5)
    theirs.load_state_dict(ours.state_dict())
    x = numbers(3, 7)
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 2047, 2048, 2049, 16_384, 20_001])
def test_pieces_cover_all_rows_once_and_their_sizes_come_again(count: int) -> None:
    for size in (1, 256, 1000, 4096):
        bounds, rest = products._pieces(torch.empty(count, 1), size)
        edges = [*bounds, rest]
        assert [low for low, _ in edges] == [0, *(high for _, high in edges[:-1])]
        assert edges[-1][1] == count
        assert rest[1] - rest[0] < 64
        sizes = {high - low for low, high in bounds}
        assert all(rows % 256 == 0 or rows in (128, 64) for rows in sizes)
        assert len(sizes) <= 4
        assert len(bounds) <= count / size + 3, "what is left goes in one piece, not in many small ones"


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_results_do_not_depend_on_the_number_of_threads(kind: torch.dtype) -> None:
    x, weight = numbers(3000, 70, dtype=kind), numbers(90, 70, seed=2, dtype=kind)

    def run() -> tuple[torch.Tensor, ...]:
        y = linear(x, weight)
        return y, *torch.autograd.grad(y.sum(), (x, weight))

    assert_threads_do_not_matter(run)
