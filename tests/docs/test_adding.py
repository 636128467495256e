"""The components that the page on adding shows: put together into one run of the stages, as they stand there."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from configs.load import build_recipe
from configs.registry import (
    DATASETS,
    EVALUATORS,
    EXPLAINERS,
    LOADERS,
    LOSSES,
    MODELS,
    PARTITIONERS,
    SCHEDULES,
    STRATEGIES,
    TEXTS,
    TRANSFORMS,
)
from configs.schema import Recipe
from models.losses.chosen import loss_of
from tasks.calls import load_stage
from tasks.evaluators.evaluators import Prediction
from tasks.explain.asked_score import asked_score
from tasks.explain.features import Features
from tasks.explain.scored import ScoredNeighborhood
from tasks.preprocess.texts.base import make_encoder
from tasks.stage import Parent, StageOutcome, run_stage
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.train.job import METRICS
from tasks.train.strategies.base import Ranks
from tests.docs.conftest import ROOT
from tests.models.relational.typed_batches import FACTS, random_batch
from tests.registered import forget_registered
from tests.train.in_process import make_job, train_here

BLOCK = re.compile(r'^```python title="([^"]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)
REGISTRIES = (
    *(DATASETS, TRANSFORMS, TEXTS, PARTITIONERS, MODELS, LOSSES, LOADERS, SCHEDULES, STRATEGIES, EVALUATORS),
    EXPLAINERS,
)
# In a folder below the one that the page names.
DEEPER = {
    "tasks/train/schedules/mine/halves.py": """
from configs.base import ComponentConfig
from configs.registry import SCHEDULES
from tasks.train.schedules.base import Schedule


@SCHEDULES.register("halves")
class Halves(Schedule):
    "Half of the rate."

    class Config(ComponentConfig):
        pass

    def factor(self, done):
        return 0.5
"""
}


@pytest.fixture(autouse=True)
def _shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Put the page's code where it says, in a folder that graphmill's packages reach into; forget it afterwards."""
    forget_registered(monkeypatch, *REGISTRIES)
    shown = dict(BLOCK.findall((ROOT / "docs" / "pages" / "adding.md").read_text()))
    assert len(shown) == len(REGISTRIES) + 3  # two models (the plain one lies in examples/), two losses, a control
    code = tmp_path / "code"
    for title, text in (shown | DEEPER).items():
        assert not (ROOT / title).exists(), f"{title} is taken: the page must name another file"
        file = code / title
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for folder in [path for path in code.rglob("*") if path.is_dir()]:
        place = folder.relative_to(code)
        if (ROOT / place).is_dir():
            package = importlib.import_module(".".join(place.parts))
            monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        else:
            (folder / "__init__.py").touch()
    for registry in REGISTRIES:
        monkeypatch.setattr(registry, "_scanned", False)
    yield
    for name, module in [*sys.modules.items()]:
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def test_components_are_found_in_folders_below() -> None:
    assert MODELS.get("stretch").__module__ == "models.scorers.stretch"
    assert MODELS.config_class("stretch").model_fields.keys() >= {"dim", "features"}
    assert SCHEDULES.get("halves").__module__ == "tasks.train.schedules.mine.halves"


def test_a_list_of_names_imports_no_component_that_options_tell_of() -> None:
    code = "import sys; from configs.registry import REGISTRIES as r; [each.names() for each in r.values()]; "
    code += "print(*({'torch', 'numpy', 'numba', 'prefect', 'mlflow'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def recipe() -> Recipe:
    values: dict[str, Any] = {
        "name": "shown",
        "dataset": {"name": "ring", "num_nodes": 400},
        "preprocess": {"transforms": [{"name": "max_abs"}]},
        "partition": {"name": "ranges", "num_parts": 4},
        "model": "graphsage",
        "train": {
            "strategy": "interleaved",
            "loader": {"name": "full_batches", "batch_size": 64},
            "schedule": {"name": "polynomial", "power": 1.5, "warmup_steps": 2},
            "epochs": 3,
        },
        "evaluate": {"evaluator": {"name": "top_k", "k": 2}},
    }
    return build_recipe(values)


def run_to(last: str, home: Home) -> StageOutcome[Any]:
    parents: dict[str, Parent] = {}
    for name in ("ingest", "preprocess", "components", "partition"):
        stage = load_stage(name)
        outcome = run_stage(stage, recipe(), {parent: parents[parent] for parent in stage.parents}, home)
        parents[name] = outcome.parent
        if name == last:
            break
    return outcome


def test_data_set_and_transform(home: Home) -> None:
    outcome = run_to("preprocess", home)
    store = GraphStore(outcome.folder, outcome.manifest)
    train = np.asarray(store["feat"])[np.asarray(store["train_idx"])]
    assert outcome.manifest.num_nodes == 400
    np.testing.assert_allclose(np.abs(train).max(axis=0), 1.0, rtol=1e-6)


def test_encoder_of_texts() -> None:
    texts = pa.array(["abcd", "ab 34", "1"], pa.large_string())
    encoder = make_encoder(TEXTS.config("shape"))
    state = encoder.learn(texts)
    x = encoder.encode(texts, state)
    assert state["dim"] == x.shape[1] == 2
    np.testing.assert_allclose(x, [[1.2, 0], [1.5, 0.4], [0.3, 1]], rtol=1e-6)


def test_partitioner(home: Home) -> None:
    manifest = run_to("partition", home).manifest
    assert manifest.num_parts == 4
    assert manifest.edge_cut == pytest.approx(4 / 400)  # where the ranges of a ring meet


def test_strategy_deals_every_item_out_once() -> None:
    ranks = [STRATEGIES.create(STRATEGIES.config("interleaved"), Ranks(rank, 3)) for rank in range(3)]
    items = np.concatenate([one.share(30, step, 2) for one in ranks for step in range(2)])
    assert sorted(items.tolist()) == list(range(30))


def test_loader_and_schedule(home: Home, tmp_path: Path) -> None:
    graph = run_to("partition", home)
    job = make_job(recipe(), graph.parent, tmp_path / "work")
    train_here(job)
    lines = [json.loads(line) for line in (tmp_path / "work" / METRICS).read_text().splitlines()]
    rates = [line["learning_rate"] for line in lines if "train/loss" in line]
    assert len(rates) == 3
    assert 0 <= rates[-1] < rates[0]


def test_evaluator(home: Home) -> None:
    graph = run_to("preprocess", home).manifest
    evaluator = EVALUATORS.create(recipe().evaluate.evaluator, graph)
    scores = np.array([[3, 2, 1, 0], [3, 2, 1, 0], [3, 2, 1, 0], [0, 1, 2, 3]], np.float32)
    assert evaluator(Prediction(scores=scores, label=np.array([0, 1, 2, 3]))) == {"top_2": 0.75}


def test_explainer(home: Home) -> None:
    graph = run_to("partition", home)
    store = GraphStore(graph.folder, graph.manifest)
    torch.manual_seed(0)
    model = MODELS.create(MODELS.config({"name": "graphsage", "num_layers": 1}), graph_facts(store.manifest))
    columns = Features(["x"], np.zeros(store.manifest.feature_dim, np.int64), np.zeros(store.manifest.feature_dim))
    scored = ScoredNeighborhood(store, model, columns, asked_score(store, model, None, None), most_edges=100)
    scored.look_at(np.array([7]))
    explanation = EXPLAINERS.create(EXPLAINERS.config({"name": "halves", "draws": 500})).explain(scored)
    [effects] = explanation.effects
    assert len(effects.effect) == 2  # a node of the ring has two neighbours
    assert np.abs(effects.effect).max() > 1e-4


def test_typed_model() -> None:
    torch.manual_seed(0)
    model = MODELS.create(MODELS.config({"name": "typed_max", "hidden_dim": 12}), FACTS)
    model(random_batch()).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_scorer_scores_a_triple_alike_from_both_sides() -> None:
    torch.manual_seed(0)
    scorer, config = MODELS.get("stretch"), MODELS.config({"name": "stretch", "dim": 12})
    heads, relations, tails = torch.randn(3, 7, 12)
    by_tail, by_head = (
        scorer.queries(config, heads, relations, "tail"),
        scorer.queries(config, tails, relations, "head"),
    )
    assert config.similarity == "l1"
    torch.testing.assert_close(by_tail.vectors - tails, by_head.scale * heads - by_head.vectors)


def test_loss_has_the_gradients_of_autograd() -> None:
    torch.manual_seed(0)
    true, drawn = torch.randn(7, requires_grad=True), torch.randn(7, 5, requires_grad=True)
    loss = LOSSES.create(LOSSES.config("squared_margin"))
    value, *gradients = loss.of_drawn(true, drawn)
    for given, expected in zip(gradients, torch.autograd.grad(value, (true, drawn)), strict=True):
        torch.testing.assert_close(given, expected)


def test_loss_of_labels_is_least_at_the_label() -> None:
    counts = torch.tensor([[1.0, 4.0], [2.0, torch.nan]])
    rate = torch.nan_to_num(counts, nan=1.0)
    scores = torch.log(torch.expm1(rate)).requires_grad_()
    loss_of("regression", LOSSES.config("poisson"))(scores, counts, 2).backward()
    torch.testing.assert_close(scores.grad, torch.zeros(2, 2))


def test_control(home: Home) -> None:
    from tasks.controls.features import ControlledGraph

    graph = run_to("preprocess", home)
    store = GraphStore(graph.folder, graph.manifest)
    controlled: Any = ControlledGraph(store, *4 * (None,))  # type: ignore[arg-type]
    control = importlib.import_module("tasks.controls.neighbor_labels").NeighborLabels(controlled, 4)
    label = np.asarray(store["label"][np.asarray(store["test_idx"])])
    scores = control.predict("test", Prediction(label=label)).scores
    seen = scores.sum(1) > 0
    assert 0.5 < seen.mean() < 1  # a node of the ring has two neighbours, half of them training nodes
    assert np.mean(scores[seen].argmax(1) == label[seen]) > 0.95
