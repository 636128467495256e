"""The linear map through either library."""

from __future__ import annotations

import pytest
import torch

from models.kernels import dense
from models.kernels.dense import Linear, linear
from tests.kernels.graphs import compare, numbers


@pytest.fixture(autouse=True)
def _through_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on machines where MKL is the faster one; but not where oneDNN would round to bfloat16."""
    if torch.cpu._is_amx_tile_supported():
        pytest.skip("this processor has AMX: the setting would round")
    monkeypatch.setattr(dense, "_PREFERS_ONEDNN", True)
    monkeypatch.setattr(dense, "_LEAST_PRODUCTS", 1)


@pytest.mark.parametrize(("rows", "columns", "out"), [(1, 1, 1), (33, 100, 47), (700, 256, 128), (5, 300, 1)])
def test_values_and_gradients_are_float32_s(rows: int, columns: int, out: int) -> None:
    x, weight, bias = numbers(rows, columns), numbers(out, columns, seed=2), numbers(out, seed=3)
    compare(linear, torch.nn.functional.linear, x, weight, bias)
    compare(lambda x, w: linear(x, w), torch.nn.functional.linear, x, weight)
    assert linear(x, weight).grad_fn.name() == "_LinearBackward"


def test_operands_that_are_not_contiguous() -> None:
    compare(lambda x, w: linear(x.t(), w.t()), lambda x, w: x.t() @ w, numbers(7, 40), numbers(7, 9, seed=2))


def test_settings_stay_as_they_were() -> None:
    before = torch.backends.mkldnn.matmul.fp32_precision
    linear(numbers(4, 4), numbers(4, 4)).sum().backward()
    assert torch.backends.mkldnn.matmul.fp32_precision == before


def test_other_inputs_go_through_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = numbers(5, 7)
    assert linear(numbers(0, 7), weight).shape == (0, 5)
    assert linear(numbers(2, 3, 7), weight).shape == (2, 3, 5)
    assert linear(numbers(3, 7).double(), weight.double()).dtype == torch.float64
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(numbers(3, 7), weight).dtype == torch.bfloat16
    monkeypatch.setattr(dense, "_LEAST_PRODUCTS", 3 * 7 * 5 + 1)
    assert linear(numbers(3, 7), weight).grad_fn.name() != "_LinearBackward"


def test_the_module_is_nn_linear() -> None:
    ours, theirs = Linear(7, 5), torch.nn.Linear(7, 5)
    theirs.load_state_dict(ours.state_dict())
    x = numbers(3, 7)
    torch.testing.assert_close(ours(x), theirs(x))
