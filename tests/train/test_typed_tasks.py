"""Typed graphs: hard negatives, rows at random that nobody can predict, and several tasks of one model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from configs.errors import RecipeError
from configs.load import build_recipe
from configs.registry import EVALUATORS, LOADERS, LOSSES, MODELS
from models.facts import GraphFacts
from models.losses.chosen import loss_of, make_loss
from models.losses.configs import AutoLossConfig
from models.relational.batch import RankingBatch
from models.relational.configs import ImportanceWalksConfig, RankingHeadConfig
from models.relational.ranking import RankingHead
from tasks.components.stage import STAGE as COMPONENTS
from tasks.controls.features import ControlledGraph
from tasks.controls.labels import SeveralControls
from tasks.controls.pairs.links import DegreeRule
from tasks.controls.ranked.recommendation import RecommendationControls
from tasks.evaluate.intervals import Measuring
from tasks.evaluators.metrics import rocauc_of_pairs
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.ranked import measure_ranked
from tasks.evaluators.several import make_evaluator
from tasks.inference.predictor import Predictor, evaluating
from tasks.ingest.stage import STAGE as INGEST
from tasks.kinds.base import TaskRows
from tasks.kinds.judged import Deciding
from tasks.kinds.of import predict
from tasks.kinds.several import KIND
from tasks.partition.stage import STAGE as PARTITION
from tasks.preprocess.stage import STAGE as PREPROCESS
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.stage import Parent, run_stage
from tasks.storage.controls import POPULAR_CONTROL
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import ArrayWriter, GraphStore
from tasks.storage.heads import head_manifest, head_views
from tasks.storage.home import Home
from tasks.storage.ids import IdMap
from tasks.storage.manifests import TaskHead
from tasks.train.job import BEST, RESULT
from tasks.train.labels.learnt import training_facts
from tasks.train.loaders.base import TrainingData
from tasks.train.loaders.relational import RankingLoader
from tasks.train.stage import _refuse_later_rows
from tasks.train.state.checkpoint import load_model
from tests.ingest.test_edge_ends import purchases, save, turned
from tests.models.relational.test_typed_models import plain_pinsage
from tests.ranked_shop import MOMENTS, ranked_shop, store_of
from tests.shop_graph import shop_graph
from tests.support import written
from tests.train.in_process import make_engine, make_job, own_settings, run_engine, train_here


def loader_of(store: Any, **options: Any) -> RankingLoader:
    config = LOADERS.config({"name": "ranking", "batch_size": 16, "negatives": 8, **options})
    walks = ImportanceWalksConfig(neighbors=4, count=30), 2
    return RankingLoader(config, TrainingData(store, None, num_layers=2, walks=walks, seed=3))  # type: ignore[arg-type]


@pytest.mark.parametrize(("new_only", "skip"), [(False, 0), (True, 0), (False, 2)])
def test_hard_ones_are_reached_most_and_not_right(tmp_path: Path, new_only: bool, skip: int) -> None:
    store = store_of(ranked_shop(tmp_path, new_only=new_only))
    loader = loader_of(store, hard_negatives=3, hard_skip=skip)
    links, hard = loader.links, loader.hard
    moment = MOMENTS[3]
    tasks = np.asarray(store["train_idx"], np.int64)
    tasks = tasks[links.moments(tasks) == moment]
    row, column = hard.of_tasks(tasks, moment, 3, 7)
    assert len(row) > len(tasks)
    entities, cuts = links.entities(tasks), np.full(len(tasks), moment)
    indptr, nodes, _ = hard.sampler.visits(entities, cuts, derive_key(7, 14), 31)
    for i, (task, entity) in enumerate(zip(tasks, entities, strict=True)):
        out = set(links.right(np.array([task]))[1].tolist())
        if new_only:
            out |= set(links.past(np.array([entity]), cuts[:1])[1].tolist())
        reached = np.searchsorted(links.candidates, nodes[indptr[i] : indptr[i + 1]]).tolist()
        assert column[row == i].tolist() == [one for one in reached if one not in out][skip : skip + 3]


def test_there_is_one_more_in_each_epoch_and_each_is_its_seeds_own(tmp_path: Path) -> None:
    store = store_of(ranked_shop(tmp_path))
    loader, plain = loader_of(store, hard_negatives=2), loader_of(store)
    for epoch, most in ((0, 0), (1, 1), (2, 2), (9, 2)):
        batch, without = loader.epoch_batch(epoch, 0, 5), plain.epoch_batch(epoch, 0, 5)
        if most == 0:
            assert batch.hard is None
            continue
        assert np.bincount(batch.hard[0].numpy(), minlength=batch.num_seeds).max() == most
        nodes = [one.inputs.types[1].node_ids[one.candidate_rows].numpy() for one in (batch, without)]
        shared = torch.isfinite(batch.log_inclusion)
        np.testing.assert_array_equal(nodes[0][shared.numpy()], nodes[1])
        torch.testing.assert_close(batch.log_inclusion[shared], without.log_inclusion)
        for one in (batch, without):
            one.names = [nodes[one is without][place] for place in one.right[1].tolist()]  # type: ignore[attr-defined]
        assert batch.names == without.names
        assert not set(map(tuple, batch.hard.T.tolist())) & set(map(tuple, batch.left_out.T.tolist()))
    assert loader_of(store, hard_negatives=2, negatives=1000).epoch_batch(5, 0, 5).hard is None


@pytest.mark.parametrize("loss", [{"name": "softmax"}, {"name": "margin", "margin": 0.7}, {"name": "bpr"}], ids=str)
def test_losses_with_hard_ones_are_those_of_loops(loss: dict[str, Any]) -> None:
    torch.manual_seed(0)
    head = RankingHead(6, (0, 0), RankingHeadConfig(popularity=False, history=False), 0.0)
    head = head.double()
    head.take_loss(LOSSES.config(loss))
    source = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    candidate = torch.randn(7, 6, dtype=torch.float64)
    log_inclusion = torch.log(torch.rand(7, dtype=torch.float64))
    log_inclusion[[5, 6]] = torch.inf  # these are there for single seeds
    batch = RankingBatch(
        [], None, torch.zeros(4, dtype=torch.int64), 3, 0,  # type: ignore[arg-type]
        right=torch.tensor([[0, 1, 1, 2], [2, 0, 4, 1]]),
        left_out=torch.tensor([[0, 1, 1, 2, 2], [2, 0, 4, 1, 3]]),
        hard=torch.tensor([[0, 0, 1], [5, 3, 6]]),
        log_inclusion=log_inclusion,
    )  # fmt: skip
    scored = head.of_batch(source, candidate, batch)
    facts = GraphFacts("ranking", 1, 10, rank_type=0)
    found = make_loss(LOSSES.config(loss), "ranking", facts)(scored, batch.target, 3)
    [gradient] = torch.autograd.grad(found, source)
    out = set(map(tuple, batch.left_out.T.tolist()))
    hard = set(map(tuple, batch.hard.T.tolist()))
    scores, losses = source @ candidate.T / 6**0.5, []
    for i, j in batch.right.T.tolist():
        others = [c for c in range(7) if (i, c) not in out and (c < 5 or (i, c) in hard)]
        if loss["name"] == "softmax":
            chances = {c: 1.0 if (i, c) in hard else log_inclusion[c].exp() for c in others}
            total = scores[i, j].exp() + sum(scores[i, c].exp() / chances[c] for c in others)
            losses.append(total.log() - scores[i, j])
        else:
            cost = torch.relu if loss["name"] == "margin" else torch.nn.functional.softplus
            misses = [cost(loss.get("margin", 0.0) + scores[i, c] - scores[i, j]) for c in others]
            losses.append(sum(misses) / len(misses))
    wanted = torch.stack(losses).mean()
    assert found.item() == pytest.approx(wanted.item(), rel=1e-9)
    [other] = torch.autograd.grad(wanted, source)
    torch.testing.assert_close(gradient, other)
    assert torch.isfinite(gradient).all()


def test_entities_and_candidates_read_what_walks_visit(tmp_path: Path) -> None:
    """Both types' convolutions are the formula, edge by edge, on a batch of both."""
    store = store_of(ranked_shop(tmp_path))
    batch = loader_of(store).epoch_batch(0, 0, 1)
    facts = replace(graph_facts(store.manifest), fanouts=((1, 1),) * 6)
    options = {"name": "pinsage", "hidden_dim": 12, "dropout": 0, "id_embedding": {"types": ()}}
    model: Any = MODELS.create(MODELS.config(options), facts)
    x = model.encoder(batch.inputs)
    for block, layer in zip(batch.blocks, model.layers, strict=True):
        x = {t: some[: block.num_src[t]].detach().requires_grad_() for t, some in x.items()}
        y = layer.conv(block, x)
        assert sorted(y) == [0, 1]
        for t in (0, 1):
            assert len(block.by_number[-1 - t].indices) > 0
            wanted = torch.stack([plain_pinsage(layer.conv, block, x, t, v) for v in range(block.num_dst[t])])
            torch.testing.assert_close(y[t], wanted, rtol=1e-4, atol=1e-5)
        x = y


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["softmax", "margin", "bpr"])
def test_pinsage_learns_whose_style_is_which(tmp_path: Path, loss: str) -> None:
    parent = ranked_shop(tmp_path / "graph", num_customers=150, buys=3000)
    walks = {"count": 20, "neighbors": 8}
    ranking = {"history": False}
    given = {
        "name": "small",
        "dataset": {"name": "synthetic_shop", "predict": "products"},
        "model": {"name": "pinsage", "hidden_dim": 16, "dropout": 0, "walks": walks, "ranking": ranking},
        "train": {
            "loader": {"name": "ranking", "batch_size": 64, "negatives": 20, "hard_negatives": 2},
            "epochs": 6,
            "loss": loss,
        },
    }
    job = make_job(build_recipe(given, ["train.threads=1", "train.learning_rate=0.02"]), parent, tmp_path / "work")
    train_here(job)
    store = store_of(parent)
    popular = dict(RecommendationControls(store).predictions("valid", Prediction()))[POPULAR_CONTROL].ranked
    metric = json.loads((job.work / RESULT).read_text())["best_metric"]
    assert metric > 1.3 * measure_ranked(popular, 10)["map@10"]


@pytest.mark.parametrize("turn", [False, True])
def test_a_model_of_random_purchases_is_as_good_as_chance(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch, turn: bool
) -> None:
    """Negatives of two users, or of two items, gave it a ROC-AUC of 0.7 and more."""
    monkeypatch.chdir(tmp_path)
    pairs = purchases(4000, 500, 800)
    save(turned(pairs) if turn else pairs)
    dataset = {"name": "tables", "task": "link", "metric": "rocauc", "edges": {"files": "e.csv"}}
    train = {"epochs": 5, "threads": 1, "device": "cpu", "learning_rate": 0.01}
    recipe = build_recipe({"name": "shop", "dataset": dataset, "model": "graphsage", "train": train})
    done = run_stage(INGEST, recipe, {}, home)
    for stage in (PREPROCESS, COMPONENTS, PARTITION):
        done = run_stage(stage, recipe, {stage.parents[0]: done.parent}, home)
    with own_settings():
        job = make_job(recipe, done.parent, tmp_path / "work")
        run_engine(make_engine(job))
    store = GraphStore(done.parent.folder, done.parent.manifest)
    predictor, rule = Predictor(store), DegreeRule(store)
    for split in ("valid", "test"):
        area = rocauc_of_pairs(*predict(predictor, load_model(job.work / BEST), split).pairs())
        assert abs(area - 0.5) < 0.06
        assert abs(rule.rocauc(*predictor.link_pairs(split)) - 0.5) < 0.06
    [text] = store.manifest.report["negatives"]
    assert "bipartite" in text


HEADS = (
    TaskHead(name="good", task_type="binary", num_classes=2, metric="rocauc"),
    TaskHead(name="kind", task_type="multiclass", num_classes=4, metric="accuracy", weight=0.5),
    TaskHead(name="sizes", task_type="regression", num_tasks=2, metric="rmse", weight=2.0),
)


def graph_of_several(folder: Path, num_customers: int = 60) -> Parent:
    """The small shop; a task is good (as there), of one of four kinds, and has two sizes; some are not known."""
    parent = shop_graph(folder, num_customers)
    good = np.load(folder / "label.npy").astype(np.float32)
    rng = np.random.default_rng(3)
    label = np.full((len(good), 4), np.nan, np.float32)
    tasks = good >= 0
    label[tasks, 0] = good[tasks]
    label[tasks, 1] = rng.integers(0, 4, tasks.sum())
    label[tasks, 2:] = 100 + 30 * good[tasks, None] + rng.standard_normal((tasks.sum(), 2))
    for column in range(1, 4):
        label[rng.random(len(label)) < 0.2, column] = np.nan
    writer = ArrayWriter(folder)
    writer.write("label", label)
    fields = {"task_type": "several", "num_classes": 0, "num_tasks": 4, "metric": "good.rocauc", "heads": HEADS}
    return written(parent, **fields, arrays={**parent.manifest.arrays, **writer.entries})


def test_the_loss_is_the_weighted_sum_of_each_ones(tmp_path: Path) -> None:
    facts = training_facts(store_of(graph_of_several(tmp_path)))
    assert (facts.out_dim, facts.head_scores, facts.head_labels) == (7, (1, 4, 2), (1, 1, 2))
    assert facts.label_scale[:5] == (1.0,) * 5
    assert min(facts.label_scale[5:]) > 5
    torch.manual_seed(0)
    scores = torch.randn(37, 7, requires_grad=True)
    target = torch.stack([torch.randint(2, (37,)).float(), torch.randint(4, (37,)).float(), *torch.randn(2, 37)], 1)
    target[torch.rand(37, 4) < 0.3] = torch.nan
    several = make_loss(AutoLossConfig(), "several", facts)
    loss = several(scores, target, 37)
    (found,) = torch.autograd.grad(loss, scores)
    kinds = torch.nan_to_num(target[:, 1], nan=-1).long()
    scale = torch.tensor(facts.label_scale[5:])
    expected = (
        loss_of("binary")(scores[:, :1], target[:, :1], 37)
        + 0.5 * loss_of("multiclass")(scores[:, 1:5], kinds, 37)
        + 2 * loss_of("regression")(scores[:, 5:] / scale, target[:, 2:] / scale, 37)
    )
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(found, torch.autograd.grad(expected, scores)[0])
    nothing = several(scores, torch.full_like(target, torch.nan), 37)
    assert nothing.item() == 0


def prediction_of(store: GraphStore, split: str = "test") -> Prediction:
    rows = np.asarray(store[f"{split}_idx"])
    scores = np.random.default_rng(1).standard_normal((len(rows), 7)).astype(np.float32)
    return Prediction(scores=scores, label=np.asarray(store["label"][rows]))


def test_metrics_are_those_of_each_alone(tmp_path: Path) -> None:
    store = store_of(graph_of_several(tmp_path))
    auto = EVALUATORS.config({"name": "auto"})
    evaluator = make_evaluator(auto, store.manifest)
    assert (evaluator.metric, evaluator.higher_is_better) == ("good.rocauc", True)
    prediction = prediction_of(store)
    values = Measuring.of({"name": "auto"}, store.manifest).measure(prediction)
    assert list(values)[:1] == ["good.rocauc"]
    for view in head_views(store.manifest):
        own = head_manifest(store.manifest, view.head)
        part = Prediction(scores=prediction.scores[:, view.scores], label=view.label_of(prediction.label))
        for name, value in Measuring.of({"name": "auto"}, own).measure(part).items():
            assert values[f"{view.head.name}.{name}"] == value
    tasks = [name.partition(".")[0] for name in values]
    assert tasks == sorted(tasks, key=["good", "kind", "sizes"].index)
    with pytest.raises(RecipeError, match="several tasks, and each names its metric"):
        make_evaluator(EVALUATORS.config({"name": "rocauc"}), store.manifest)


def test_predictions_have_columns_by_task(tmp_path: Path) -> None:
    store = store_of(graph_of_several(tmp_path / "graph"))
    prediction = prediction_of(store)
    opened: Any = SimpleNamespace(store=store, ids=IdMap(store, None))
    rows = TaskRows(np.asarray(store["test_idx"], np.int64), "test", prediction.label)
    [columns] = KIND.columns(opened, rows, prediction, Deciding())
    table = pa.table(columns)
    assert table.column_names == [
        *("id", "split", "good_label", "good_prediction", "good_score", "good_probability_1"),
        *("kind_label", "kind_prediction", "kind_score", "sizes_label", "sizes_prediction"),
    ]
    kinds = prediction.label[:, 1]
    assert table["kind_label"].to_pylist() == [None if np.isnan(kind) else int(kind) for kind in kinds]
    assert table["kind_prediction"].to_pylist() == prediction.scores[:, 1:5].argmax(1).tolist()
    np.testing.assert_array_equal(table["sizes_prediction"].to_pylist(), prediction.scores[:, 5:])


@pytest.mark.slow
def test_controls_of_several_tasks(tmp_path: Path) -> None:
    store = store_of(graph_of_several(tmp_path / "graph"))
    evaluator = make_evaluator(EVALUATORS.config({"name": "auto"}), store.manifest)
    dataset = SimpleNamespace(manifest=SimpleNamespace(tables={}))
    nothing: Any = None
    graph = ControlledGraph(store, dataset, nothing, nothing, tmp_path)  # type: ignore[arg-type]
    controls = SeveralControls(graph)
    found = dict(controls.measured("test", prediction_of(store), evaluator))
    assert set(found) == {"constant", "features", "boosted"}
    assert all(set(values) == {"good.rocauc", "kind.accuracy", "sizes.rmse"} for values in found.values())
    assert found["constant"]["good.rocauc"] == 0.5
    assert found["constant"]["sizes.rmse"] > 5


def test_the_constant_of_an_absolute_error_is_the_median(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = graph_of_several(tmp_path)
    heads = (*HEADS[:2], HEADS[2].model_copy(update={"metric": "mae"}))
    store = GraphStore(parent.folder, parent.manifest.model_copy(update={"heads": heads}))
    monkeypatch.setattr("tasks.controls.labels.moment_controls", lambda *_: {})
    monkeypatch.setattr("tasks.controls.labels.EntityRows", lambda *_: None)
    nothing: Any = None
    dataset = SimpleNamespace(manifest=SimpleNamespace(tables={}))
    controls = SeveralControls(ControlledGraph(store, dataset, nothing, nothing, tmp_path))  # type: ignore[arg-type]
    prediction = prediction_of(store)
    evaluator = make_evaluator(EVALUATORS.config({"name": "auto"}), store.manifest)
    ((name, found),) = controls.measured("test", prediction, evaluator)
    train = np.asarray(store["label"])[np.asarray(store["train_idx"])]
    wanted = [np.nanmean(np.abs(prediction.label[:, column] - np.nanmedian(train[:, column]))) for column in (2, 3)]
    assert name == "constant"
    assert found["sizes.mae"] == pytest.approx(np.mean(wanted), rel=1e-5)
    assert found["good.rocauc"] == 0.5


def recipe(*changes: str) -> Any:
    options = ["model.hidden_dim=16", "train.learning_rate=0.01", "model.dropout=0", "train.loader.batch_size=64"]
    options += ["train.prefetch=0", "train.loader.fanout=8,4", "train.threads=1", *changes]
    return build_recipe({"name": "shop", "dataset": "synthetic", "model": "heterosage"}, options)


@pytest.mark.slow
def test_a_model_of_several_tasks_learns_them(tmp_path: Path) -> None:
    parent = graph_of_several(tmp_path / "graph", 150)
    store = store_of(parent)
    job = make_job(recipe("train.epochs=12"), parent, tmp_path / "work")
    with own_settings():
        run_engine(make_engine(job))
        model = load_model(job.work / BEST)
        with evaluating(model):
            predictor = Predictor(store, scratch=tmp_path)
            prediction = predict(predictor, model, "test")
    evaluator = make_evaluator(EVALUATORS.config({"name": "auto"}), store.manifest)
    values = evaluator(prediction)
    assert values["good.rocauc"] > 0.8
    assert values["sizes.rmse"] < 13  # their spread is 15
    assert model.facts.head_types == graph_facts(store.manifest).head_types


def test_models_of_one_task_are_refused(tmp_path: Path) -> None:
    manifest = graph_of_several(tmp_path).manifest
    made = build_recipe({"name": "shop", "dataset": "synthetic", "model": "rgcn"})
    with pytest.raises(RecipeError, match=r"has several tasks, and model\.name=rgcn learns one"):
        _refuse_later_rows(made, manifest)
