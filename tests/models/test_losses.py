"""Losses of labels and of links: their formulas, labels that are missing, weights, and what each is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from configs.errors import RecipeError
from configs.load import build_recipe
from configs.registry import LOSSES
from configs.trust import own_files
from models.losses.chosen import loss_of
from tasks.storage.home import Home
from tasks.train.gradients.engine import GradientEngine
from tasks.train.job import Job
from tasks.train.labels.class_weights import check_loss
from tests.ranked_shop import store_of
from tests.registered import forget_registered
from tests.support import link_graph, node_graph
from tests.train.in_process import make_engine, own_settings
from tests.train.test_training import partition, recipe

NAN = float("nan")


def share(scores: list[float], k: int) -> float:
    powers = np.exp(np.array(scores))
    return float(powers[k] / powers.sum())


def logistic(score: float) -> float:
    return float(1 / (1 + np.exp(-score)))


def of_class(name: str, options: dict[str, Any], scores: list[float], y: int) -> float:
    p = share(scores, y)
    if name == "focal":
        return float(-((1 - p) ** options.get("gamma", 2)) * np.log(p))
    smoothing = options.get("label_smoothing", 0.0)
    logs = [np.log(share(scores, k)) for k in range(len(scores))]
    return float(-(1 - smoothing) * logs[y] - smoothing * np.mean(logs))


def of_number(name: str, options: dict[str, Any], s: float, y: float) -> float:
    p, e = logistic(s if y else -s), y - s
    delta, q = options.get("delta", 1), options.get("q", 0.5)
    return {
        "binary": -np.log(p) * (options.get("pos_weight", 1) if y else 1),
        "focal": -((1 - p) ** options.get("gamma", 2)) * np.log(p),
        "mse": e * e,
        "mae": abs(e),
        "huber": e * e / 2 if abs(e) < delta else delta * (abs(e) - delta / 2),
        "quantile": q * e if e > 0 else (q - 1) * e,
    }[name]


CLASSES: list[dict[str, Any]] = [
    {"name": "cross_entropy"},
    {"name": "cross_entropy", "label_smoothing": 0.2},
    {"name": "focal"},
    {"name": "focal", "gamma": 0.5},
]
COLUMNS: list[dict[str, Any]] = [
    {"name": "binary"},
    {"name": "binary", "pos_weight": 7.0},
    {"name": "focal", "gamma": 1.5},
    {"name": "mse"},
    {"name": "mae"},
    {"name": "huber", "delta": 0.4},
    {"name": "quantile", "q": 0.9},
]


def check(loss: Any, scores: Tensor, target: Tensor, wanted: float) -> None:
    """The value, and the gradient by small steps."""
    found = loss(scores, target, len(scores))
    assert found.item() == pytest.approx(wanted, rel=1e-9)
    assert torch.autograd.gradcheck(lambda given: loss(given, target, len(given)), scores)


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("options", CLASSES, ids=str)
def test_losses_of_classes(options: dict[str, Any], weighed: bool) -> None:
    torch.manual_seed(0)
    scores = (2 * torch.randn(9, 3, dtype=torch.float64)).requires_grad_()
    target, weight = torch.tensor([0, 1, 2, -1, 2, 2, 0, -1, 1]), [1.0, 0.25, 3.0]
    loss = loss_of("multiclass", LOSSES.config(options), torch.tensor(weight, dtype=torch.float64) if weighed else None)
    each = [
        of_class(options["name"], options, row, y) * (weight[y] if weighed else 1)
        for row, y in zip(scores.tolist(), target.tolist(), strict=True)
        if y >= 0
    ]
    check(loss, scores, target, float(np.mean(each)))


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("options", COLUMNS, ids=str)
def test_losses_of_columns(options: dict[str, Any], weighed: bool) -> None:
    torch.manual_seed(0)
    config = LOSSES.config(options)
    is_number = "regression" in config.label_types
    scores = (2 * torch.randn(5, 2, dtype=torch.float64)).requires_grad_()
    target = torch.tensor([[1, 0], [NAN, 1], [0, 0], [1, NAN], [NAN, NAN]], dtype=torch.float64)
    target = 1.7 * target if is_number else target
    weight = [[1.0, 3.0], [0.5, 9.0]]
    with_weight = weighed and not is_number
    loss = loss_of("regression" if is_number else "multilabel", config, torch.tensor(weight) if with_weight else None)
    each = [
        of_number(options["name"], options, s, y) * (weight[column][int(y)] if with_weight else 1)
        for row, labels in zip(scores.tolist(), target.tolist(), strict=True)
        for column, (s, y) in enumerate(zip(row, labels, strict=True))
        if not np.isnan(y)
    ]
    check(loss, scores, target, float(np.mean(each)))


@pytest.mark.parametrize("name", LOSSES.names())
def test_every_loss_says_what_it_is_for_and_has_a_gradient_without_labels(name: str) -> None:
    config = LOSSES.config(name)
    assert config.label_types
    for kind in set(config.label_types) - {"link", "ranking", "triple"}:
        scores = torch.tensor([[7.0, 9.0]], requires_grad=True)
        target = torch.tensor([-1]) if kind == "multiclass" else torch.full((1, 2), NAN)
        loss_of(kind, config)(scores, target, 1).backward()
        assert not scores.grad.any()


@pytest.mark.parametrize("name", ["logistic", "softmax", "margin", "bpr"])
def test_links_are_compared_with_their_own_negatives(name: str) -> None:
    torch.manual_seed(0)
    scores = torch.randn(4 + 4 * 3, requires_grad=True)
    loss = loss_of("link", LOSSES.config(name))(scores, torch.zeros(16), 4)
    each = []
    for i, true in enumerate(scores[:4].tolist()):
        drawn = np.array(scores[4 + 3 * i : 7 + 3 * i].tolist())
        each.append(
            {
                "logistic": np.log1p(np.exp(-true)) / 2 + np.log1p(np.exp(drawn)).mean() / 2,
                "softmax": -np.log(share([true, *drawn], 0)),
                "margin": np.maximum(0, 1 - true + drawn).mean(),
                "bpr": np.log1p(np.exp(drawn - true)).mean(),
            }[name]
        )
    assert loss.item() == pytest.approx(np.mean(each), rel=1e-5)
    loss.backward()
    assert (scores.grad[:4] <= 0).all()
    assert (scores.grad[4:] >= 0).all()


def test_a_loss_is_refused_where_the_labels_are_others(tmp_path: Path) -> None:
    nodes, links = node_graph(tmp_path / "n").manifest, link_graph(tmp_path / "l").manifest
    check_loss(LOSSES.config("focal"), nodes)
    for name, graph, take in (("mae", nodes, "auto, cross_entropy, focal"), ("focal", links, "auto, bpr, logistic")):
        with pytest.raises(RecipeError, match=f"train.loss={name} is not for .*; take {take}"):
            check_loss(LOSSES.config(name), graph)
    with pytest.raises(RecipeError, match="loss=mae is not for triples; take softmax"):
        build_recipe({"name": "a", "dataset": "synthetic_triples", "model": "transe", "train": {"loss": "mae"}})


OWN = """
import torch

from configs.registry import LOSSES
from models.losses.base import LabelLoss
from models.losses.configs import ClassLossConfig


@LOSSES.register("hinge")
class Hinge(LabelLoss):
    "Crammer and Singer's."

    class Config(ClassLossConfig):
        gap: float = 1.0
        "Between the right class and the others."

    def each(self, scores, target):
        right = scores.gather(1, target[:, None])
        return torch.relu(self.config.gap + scores - right).mean(1)
"""


def test_a_file_of_ones_own_is_a_loss(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_registered(monkeypatch, LOSSES)
    path, work = tmp_path / "hinge.py", tmp_path / "work"
    path.write_text(OWN)
    with own_files(), own_settings():
        wanted = recipe("node", f"train.loss={{name: hinge, file: {path}, gap: 2.0}}")
        graph = partition(tmp_path / "graph")
        work.mkdir()
        job = Job.make(wanted, graph.folder, graph.manifest.digest, work)
        engine: GradientEngine = make_engine(job)
        engine.model.eval()
        batch = engine.batches.make(0)
        scores = engine.model(batch)
        lacking = torch.relu(2 + scores - scores.gather(1, batch.target[:, None])).mean()
        torch.testing.assert_close(engine.optimization.loss(batch), lacking)
        saved = job.save()
        path.unlink()
        assert Job.load(saved).train.loss.gap == 2.0  # a machine that has not the file has the job's copy
        assert store_of(graph).manifest.task_type == "multiclass"
