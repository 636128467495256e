"""Batches with as many seeds of each class, and scores that know the classes' real shares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import RecipeError
from tasks.inference.predictor import Predictor, evaluating
from tasks.train.labels.balance import Balance
from tasks.train.loaders.base import LabelLoader
from tasks.train.loaders.config_base import resolve_loader
from tests.ranked_shop import store_of
from tests.shop_graph import shop_graph
from tests.train.in_process import make_engine, own_settings, run_engine
from tests.train.test_class_weights import job_of, rare
from tests.train.test_training import partition, recipe
from tests.train.test_typed_tasks import graph_of_several
from tests.train.test_typed_tasks import recipe as typed_recipe


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    with own_settings():
        yield


def loader_of(label: Any) -> LabelLoader:
    manifest: Any = SimpleNamespace()
    return LabelLoader(manifest, np.arange(len(label)), np.asarray(label))


@pytest.mark.parametrize("columns", [False, True])
def test_every_class_that_occurs_has_as_many_seeds(columns: bool) -> None:
    rng = np.random.default_rng(3)
    code = rng.choice([-1, 0, 1], 1001, p=[0.3, 0.68, 0.02]) if columns else rng.choice([-1, 0, 1, 4], 1001)
    label = np.where(code < 0, np.nan, code)[:, None].astype(np.float32) if columns else code
    balance, kinds = Balance(loader_of(label), 2 if columns else 6), 2 if columns else 3
    places = rng.permutation(1000)
    chosen = balance.positions(places, 17)
    count = np.bincount(code[chosen])
    assert code[chosen].min() == 0
    assert count[count > 0].tolist() == pytest.approx([1000 / kinds] * kinds, abs=1)
    assert np.array_equal(chosen, balance.positions(places, 17))
    assert not np.array_equal(chosen, balance.positions(places, 18))
    every = np.concatenate([balance.positions(places, key) for key in range(60)])
    assert np.array_equal(np.unique(every), np.flatnonzero(code >= 0)), "any labelled row may be drawn, and no other"


def test_the_prior_is_that_of_the_split() -> None:
    balance = Balance(loader_of([0, 0, 0, 2, -1]), 4)
    assert balance.log_prior(4).tolist() == pytest.approx([np.log(0.75), 0, np.log(0.25), 0])
    label = np.array([[0], [1], [0], [0], [np.nan]], np.float32)
    assert Balance(loader_of(label), 2).log_prior(1).tolist() == pytest.approx([np.log(0.25 / 0.75)])


def test_one_class_is_nothing_to_balance() -> None:
    with pytest.raises(RecipeError, match="needs training rows of two classes"):
        Balance(loader_of([1, 1, -1]), 2)


def test_rare_classes_are_met_and_probabilities_are_those_of_real_shares(tmp_path: Path) -> None:
    """Where weights have a rare class count more, its probability is far above its share."""

    def mean_probability(option: str, work: str) -> tuple[float, float]:
        graph, wanted = rare(tmp_path / "g", 10), recipe("node", "train.loader=neighbor", "train.epochs=12", option)
        weights = (((0.55, 5.0),),) if "class_weight" in option else ()
        engine = make_engine(job_of(wanted, graph, tmp_path / work, weights))
        seen = float((engine.batches.make(0).target == 1).float().mean())
        run_engine(engine)
        store = store_of(graph)
        with evaluating(engine.model):
            scores = Predictor(store).node_scores(engine.model, np.asarray(store["train_idx"], np.int64))
        return seen, float(torch.from_numpy(scores).softmax(1)[:, 1].mean())

    seen, balanced = mean_probability("train.loader.balance=classes", "balanced")
    assert seen == pytest.approx(0.5, abs=0.05)
    assert balanced == pytest.approx(0.1, abs=0.06)
    seen, weighed = mean_probability("train.loss.class_weight=balanced", "weighed")
    assert seen == pytest.approx(0.1, abs=0.08)
    assert weighed > 0.3


@pytest.mark.parametrize("kind", ["graph", "relational"])
def test_graphs_and_rows_are_balanced_too(tmp_path: Path, kind: str) -> None:
    if kind == "graph":
        graph, wanted = partition(tmp_path / "g", "graph"), recipe("graph", "train.loader.balance=classes")
    else:
        graph, wanted = shop_graph(tmp_path / "g"), typed_recipe("train.epochs=1", "train.loader.balance=classes")
    engine = make_engine(job_of(wanted, graph, tmp_path / "w"))
    target = torch.cat([engine.batches.make(number).target.flatten() for number in range(engine.batches.total)])
    assert float(target.mean()) == pytest.approx(0.5, abs=0.05)
    run_engine(engine)


def test_what_cannot_be_balanced_is_refused(tmp_path: Path) -> None:
    manifest = graph_of_several(tmp_path / "several").manifest
    wanted = typed_recipe("train.loader.balance=classes")
    with pytest.raises(RecipeError, match="balance=classes is for one class a row"):
        resolve_loader(wanted.train, wanted.model, manifest)
    link = partition(tmp_path / "link", "link").manifest
    wanted = recipe("link", "train.loader={name: auto, balance: classes}")
    with pytest.raises(RecipeError, match="has links"):
        resolve_loader(wanted.train, wanted.model, link)
    with pytest.raises(RecipeError, match="take one of them"):
        recipe("node", "train.loader={name: neighbor, balance: classes}", "train.loss.class_weight=balanced")
