"""Factorisations of graphs whose weights are far from 1, and options that leave nothing of a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import DataError, RecipeError
from configs.load import build_recipe
from configs.registry import MODELS
from models.vectors.factorization import orthonormal
from tasks.sampling.factor_graph import factor_graph
from tests.registered import models_of
from tests.support import planted_edges

NUM_NODES = 300


def arrays(weight: np.ndarray | float | None) -> dict[str, np.ndarray]:
    """A planted graph, each edge in both directions; `weight`: one for all edges, or one for each node."""
    edges, _ = planted_edges(NUM_NODES, 4, 8)
    source, target = np.concatenate([edges, edges[::-1]], 1)
    order = np.lexsort((target, source))
    source, target = source[order], target[order]
    indptr = np.concatenate([[0], np.bincount(source, minlength=NUM_NODES).cumsum()])
    found = {"csr_indptr": indptr, "csr_indices": target.astype(np.int32)}
    if weight is not None:
        each = np.full(NUM_NODES, weight) if np.isscalar(weight) else np.asarray(weight)
        found["edge_weight"] = (each[source] * each[target] / each.max()).astype(np.float32)
    return found


def vectors(name: str, weight: np.ndarray | float | None = None, **options: Any) -> torch.Tensor:
    config: Any = MODELS.config({"name": name, "dim": 8, **options})
    made = factor_graph(arrays(weight), symmetric=True, seed=1, weighted=config.weighted)  # type: ignore[arg-type]
    found: torch.Tensor = MODELS.get(name).compute(config, made, 1, lambda what: None)
    return found


@pytest.mark.parametrize("name", models_of("factors"))
def test_equal_weights_are_as_ones_whatever_their_unit(name: str) -> None:
    expected = vectors(name, 1.0)
    if name != "netmf":  # it draws walks otherwise then
        assert torch.equal(expected, vectors(name))
    for weight in (1e-30, 1e30, 3e38):
        torch.testing.assert_close(vectors(name, weight), expected)


@pytest.mark.parametrize("name", models_of("factors"))
def test_weights_count_by_what_they_are_to_each_other(name: str) -> None:
    weight = np.random.default_rng(0).random(NUM_NODES) + 0.5
    expected = vectors(name, weight)
    for unit in (2.0**-90, 2.0**90):
        assert torch.equal(vectors(name, weight * unit), expected)


@pytest.mark.parametrize("beta", [-4.0, 4.0])
def test_powers_of_large_weights_are_finite(beta: float) -> None:
    torch.testing.assert_close(vectors("fastrp", 1e30, beta=beta), vectors("fastrp", beta=beta))


@pytest.mark.parametrize("name", models_of("factors"))
@pytest.mark.parametrize(
    ("weight", "message"),
    [(0.0, "all weights are 0"), (-1.0, "below 0, infinite ones or NaN"), (np.nan, "below 0, infinite ones or NaN")],
)
def test_weights_that_say_nothing_are_refused(name: str, weight: float, message: str) -> None:
    each = np.ones(NUM_NODES)
    each[: NUM_NODES if weight == 0 else 1] = weight
    graph = arrays(1.0)
    graph["edge_weight"] = each[graph["csr_indices"]].astype(np.float32)
    with pytest.raises(DataError, match=rf"{message}.* weighted=false"):
        factor_graph(graph, symmetric=True, seed=1, weighted=True)  # type: ignore[arg-type]
    factor_graph(graph, symmetric=True, seed=1, weighted=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"name": "fastrp", "steps": []}, "give numbers, one of them not 0"),
        ({"name": "fastrp", "steps": [0, 0]}, "give numbers, one of them not 0"),
        ({"name": "skipgram", "order": "both", "dim": 1}, "dim=1 has no half; give dim=2 or more"),
    ],
)
def test_options_that_leave_no_vector_are_refused(model: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        build_recipe({"name": "demo", "dataset": "synthetic", "model": model})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("netmf", {"negatives": 1000}, r"netmf makes nothing but zeros .*negatives=1000.*leave out the options"),
        ("prone", {"theta": 100}, r"leaves the range of float32 with order=10, mu=0.2, theta=100: take a smaller"),
        ("prone", {"mu": -2, "order": 100}, r"order=100, mu=-2, theta=0.5: .* mu between 0 and 2"),
    ],
)
def test_vectors_that_say_nothing_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        vectors(name, **options)


def test_numbers_that_are_not_finite_are_refused() -> None:
    """A power of a node's weight that is far below the others'."""
    each = np.ones(NUM_NODES)
    each[0] = 1e-35
    message = r"fastrp makes numbers that are not finite .*beta=-4.0.*leave out the options"
    with pytest.raises(RecipeError, match=message):
        vectors("fastrp", each, beta=-4)


def test_a_matrix_that_is_not_finite_is_refused() -> None:
    with pytest.raises(RecipeError, match="holds numbers that are not finite"):
        orthonormal(torch.full((5, 2), torch.inf))
