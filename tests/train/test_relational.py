"""Training on typed graphs with tasks: batches as of a moment, scores that know no later row, models that learn."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import RecipeError
from configs.load import build_recipe
from configs.registry import MODELS
from models.relational.base import RelationalModel
from models.relational.batch import TypedBatch
from tasks.evaluators.several import make_evaluator
from tasks.inference.predictor import Predictor, evaluating
from tasks.kinds.of import predict
from tasks.sampling.relational.batches import TypedNeighborhoods
from tasks.stage import run_stage
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import ALWAYS, GraphStore
from tasks.train.job import BEST, RESULT
from tasks.train.loaders.config_base import resolve_loader
from tasks.train.stage import STAGE, _refuse_later_rows
from tasks.train.state.checkpoint import load_model
from tests.ranked_shop import store_of
from tests.registered import models_of
from tests.shop_graph import DAY, ENDS, MOMENTS, shop_graph
from tests.support import node_graph, written
from tests.train.in_process import make_engine, make_job, own_settings, train_here


def seeds_of(store: GraphStore, count: int = 17) -> np.ndarray:
    rng = np.random.default_rng(5)
    tasks = np.concatenate([store["train_idx"], store["valid_idx"], store["test_idx"]])
    return rng.choice(tasks, count, replace=False).astype(np.int64)


def batch_of(store: GraphStore, seeds: np.ndarray, *, newest: bool = False, key: int = 3) -> TypedBatch:
    near = TypedNeighborhoods(store, (4, 3), newest=newest)
    return near.batch(seeds, key, torch.zeros(len(seeds), 1))


def test_a_batch_asks_about_entities_as_of_the_tasks_moments(tmp_path: Path) -> None:
    store = store_of(shop_graph(tmp_path))
    seeds = seeds_of(store)
    batch = batch_of(store, seeds)
    time, kind = np.asarray(store["node_time"]), np.asarray(store["node_type"])
    entities = batch.inputs.types[0].node_ids.numpy()[batch.rows.numpy()]
    for seed, entity in zip(seeds.tolist(), entities.tolist(), strict=True):
        neighbors = store["csc_indices"][store["csc_indptr"][seed] : store["csc_indptr"][seed + 1]]
        assert neighbors.tolist() == [entity]
    assert [len(one.node_ids) for one in batch.inputs.types][3] == 0  # tasks are nobody's neighbours
    assert {relation.number for relation in batch.blocks[0].relations} == {0, 1, 3, 4}
    for t, one in enumerate(batch.inputs.types):
        nodes = one.node_ids.numpy()
        assert (kind[nodes] == t).all()
        ages = one.age.numpy()
        np.testing.assert_array_equal(np.isnan(ages), time[nodes] == ALWAYS)
        assert (ages[~np.isnan(ages)] > 0).all()
    orders, products = batch.inputs.types[1], batch.inputs.types[2]
    np.testing.assert_array_equal(orders.feat.numpy(), store["feat"][orders.node_ids.numpy(), 1:3])
    np.testing.assert_array_equal(products.feat.numpy()[:, 0], store["feat"][products.node_ids.numpy(), 3])
    np.testing.assert_array_equal(products.feat_cat.numpy(), store["feat_cat"][products.node_ids.numpy()])
    assert orders.feat_cat is None
    # Ages count from the moment: an order's, plus the moment that it came before, is its time.
    cuts = dict(zip(entities.tolist(), time[seeds].tolist(), strict=False))
    first = next(relation for relation in batch.blocks[-1].relations if relation.number == 0)
    for row, entity in enumerate(batch.inputs.types[0].node_ids.numpy()[: batch.blocks[-1].num_dst[0]].tolist()):
        for source in first.indices[first.indptr[row] : first.indptr[row + 1]].tolist():
            days = float(orders.age[source])
            moments = {(time[seed] - time[orders.node_ids[source]]) / DAY for seed in seeds.tolist()}
            assert min(abs(days - one) for one in moments) < 1e-3
            assert entity in cuts


@pytest.mark.parametrize("newest", [True, False])
def test_nothing_later_than_a_moment_changes_a_batch(tmp_path: Path, newest: bool) -> None:
    """All rows and edges of later than a moment are drawn anew: batches of tasks until then stay, bit by bit."""
    moment = MOMENTS[2]
    one, other = store_of(shop_graph(tmp_path / "a")), store_of(shop_graph(tmp_path / "b", changed_after=moment))
    assert not np.array_equal(one["csc_indices"], other["csc_indices"])
    tasks = np.asarray(one["train_idx"], np.int64)
    seeds = tasks[np.asarray(one["node_time"])[tasks] <= moment]
    assert len(seeds) > 100
    batches = [batch_of(store, seeds, newest=newest) for store in (one, other)]
    assert batches[0].num_edges == batches[1].num_edges > 1000
    _assert_equal(*batches)
    later = tasks[np.asarray(one["node_time"])[tasks] > moment]  # the test can fail
    with pytest.raises(AssertionError):
        _assert_equal(*(batch_of(store, later, newest=newest) for store in (one, other)))


def _assert_equal(one: TypedBatch, other: TypedBatch) -> None:
    for a, b in zip(one.inputs.types, other.inputs.types, strict=True):
        for name in ("node_ids", "feat", "feat_cat", "age"):
            _same(getattr(a, name), getattr(b, name))
    for block, twin in zip(one.blocks, other.blocks, strict=True):
        assert (block.num_src, block.num_dst) == (twin.num_src, twin.num_dst)
        for a, b in zip(block.relations, twin.relations, strict=True):
            for name in ("indptr", "indices"):
                _same(getattr(a, name), getattr(b, name))


def _same(a: torch.Tensor | None, b: torch.Tensor | None) -> None:
    assert (a is None) == (b is None)
    if a is not None and b is not None:
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_labelled_rows_that_are_no_tasks_see_what_they_name(tmp_path: Path) -> None:
    """Orders are labelled themselves: an order's own keys are of its time, and are seen; nothing else of then is."""
    parent = shop_graph(tmp_path, target_type="orders", own_keys=(3, 4))
    store = store_of(parent)
    orders = np.flatnonzero(np.asarray(store["node_type"]) == 1)[:40]
    batch = batch_of(store, orders)
    time = np.asarray(store["node_time"])
    assert batch.seed_type == 1
    np.testing.assert_array_equal(batch.inputs.types[1].node_ids.numpy()[batch.rows.numpy()], orders)
    own = {relation.number: relation for relation in batch.blocks[-1].relations}
    for number in (3, 4):  # the customer and the product
        np.testing.assert_array_equal(np.diff(own[number].indptr.numpy()), 1)
    ages = batch.inputs.types[1].age.numpy()
    assert (ages[len(orders) :] > 0).all()
    assert (ages[: len(orders)] == 0).all()
    without = parent.manifest.model_copy(update={"own_keys": ()})
    blind = batch_of(GraphStore(parent.folder, without), orders).blocks[-1]
    assert blind.num_edges == 0  # an order's edges are of its own time
    always = parent.manifest.model_copy(update={"target_type": "products"})
    products = np.flatnonzero(np.asarray(store["node_type"]) == 2)
    whole = batch_of(GraphStore(parent.folder, always), products)
    assert time[whole.inputs.types[1].node_ids.numpy()].max() > MOMENTS[-1]  # rows without a time see all
    assert torch.isnan(whole.inputs.types[1].age).all()


def test_graphs_without_moments_are_sampled_as_they_are(tmp_path: Path) -> None:
    """Types and relations, but no moments: nothing is cut off, nothing has an age, and a model learns from it."""
    plain = {"target_type": "orders", "fit_before": None, "time_unit": ""}
    parent = shop_graph(tmp_path / "graph", **plain)
    store = store_of(parent)
    assert not graph_facts(parent.manifest).has_times
    orders = np.flatnonzero(np.asarray(store["node_type"]) == 1)
    near = TypedNeighborhoods(store, (-1, -1), newest=False)
    batch = near.batch(orders[:9], 0, torch.zeros(9, 1))
    assert all(one.age is None for one in batch.inputs.types)
    customers = batch.inputs.types[0].node_ids.numpy()
    of_customers = next(relation for relation in batch.blocks[0].relations if relation.number == 0)
    for row, customer in enumerate(customers[: batch.blocks[0].num_dst[0]].tolist()):
        incoming = np.arange(store["csc_indptr"][customer], store["csc_indptr"][customer + 1])
        assert int(of_customers.indptr[row + 1] - of_customers.indptr[row]) == (store["edge_type"][incoming] == 0).sum()
    facts = replace(graph_facts(parent.manifest), fanouts=((4, 4),) * len(ENDS))
    for name in models_of("relational"):
        model: RelationalModel = MODELS.create(MODELS.config({"name": name, "hidden_dim": 8}), facts)
        assert np.isfinite(Predictor(store).node_scores(model, orders[:50])).all()
    made = recipe("heterosage")
    assert not resolve_loader(made.train, made.model, parent.manifest).facts(made.model, parent.manifest)["newest"]


@pytest.mark.parametrize("model", models_of("relational"))
def test_graphs_of_one_type_are_typed_graphs_too(tmp_path: Path, model: str) -> None:
    parent = written(node_graph(tmp_path / "graph"))
    job = make_job(recipe(model, "train.epochs=8"), parent, tmp_path / "work")
    train_here(job)
    assert json.loads((job.work / RESULT).read_text())["best_metric"] > 0.7


def recipe(model: str, *changes: str) -> Any:
    options = ["model.hidden_dim=16", "train.epochs=15", "train.learning_rate=0.01", "model.dropout=0"]
    options += ["train.loader.batch_size=64", "train.prefetch=0", "train.loader.fanout=8,4", "train.threads=1"]
    return build_recipe({"name": "shop", "dataset": "synthetic", "model": model}, [*options, *changes])


# pinsage reads customers alone, and what tells is their orders' products.
@pytest.mark.parametrize("model", [name for name in models_of("relational") if name != "pinsage"])
def test_training_learns_what_lies_two_hops_away(tmp_path: Path, model: str) -> None:
    parent = shop_graph(tmp_path / "graph", num_customers=150)
    job = make_job(recipe(model), parent, tmp_path / "work")
    train_here(job)
    result = json.loads((job.work / RESULT).read_text())
    assert result["best_metric"] > 0.85
    best = load_model(job.work / BEST)
    assert best.facts.fanouts == ((8, 4),) * len(ENDS)
    assert best.facts.newest
    store = store_of(parent)
    evaluator = make_evaluator(job.evaluate.evaluator, parent.manifest)
    prediction = predict(Predictor(store), best, "valid")
    assert evaluator.score(evaluator(prediction)) == pytest.approx(result["best_metric"])
    assert evaluator.score(evaluator(predict(Predictor(store), best, "test"))) > 0.8


def test_scores_do_not_depend_on_batches_and_threads_see_the_same(tmp_path: Path) -> None:
    store = store_of(shop_graph(tmp_path))
    job = make_job(recipe("heterosage", "train.loader.choose=uniform"), shop_graph(tmp_path / "g"), tmp_path / "work")
    with own_settings():
        engine = make_engine(job)
    nodes = np.asarray(store["test_idx"], np.int64)
    whole = Predictor(store).node_scores(engine.model, nodes)
    pieces = Predictor(store, batch_size=7).node_scores(engine.model, nodes[::-1].copy())[::-1]
    np.testing.assert_allclose(pieces, whole, rtol=1e-4, atol=1e-5)


def test_vectors_are_what_rows_are_scored_by(tmp_path: Path) -> None:
    store = store_of(shop_graph(tmp_path))
    facts = replace(graph_facts(store.manifest), fanouts=((3, 2),) * len(ENDS), newest=True)
    model: RelationalModel = MODELS.create(MODELS.config({"name": "heterosage", "hidden_dim": 8}), facts)
    nodes = np.asarray(store["test_idx"], np.int64)
    predictor = Predictor(store)
    with evaluating(model):
        vectors = predictor.node_vectors(model, nodes)
        scores = model.score(torch.from_numpy(np.array(vectors)))
    assert vectors.shape == (len(nodes), 8)
    np.testing.assert_allclose(scores.numpy(), predictor.node_scores(model, nodes), rtol=1e-5, atol=1e-6)


def test_models_that_see_later_rows_are_refused(tmp_path: Path) -> None:
    manifest = shop_graph(tmp_path).manifest
    for name in ("graphsage", "rgcn", "skipgram", "prone"):
        with pytest.raises(RecipeError, match=r"came after it too.*heterosage"):
            _refuse_later_rows(build_recipe({"name": "shop", "dataset": "synthetic", "model": name}), manifest)
    _refuse_later_rows(recipe("heterosage"), manifest)


@pytest.mark.parametrize(
    ("model", "change", "message"),
    [
        ("heterosage", "train.loader=neighbor", "loader=neighbor is not for such models; use ranking or relational"),
        ("heterosage", "train.loader=full", "loader=full is not for such models; use ranking or relational"),
        ("heterosage", "train.loader=precomputed", "loader=precomputed is not for such models"),
        ("graphsage", "train.loader=relational", "loader=relational is not for such models; use auto or "),
        ("heterosage", "train.strategy=partitioned", "use data_parallel or parallel_epochs"),
        ("heterosage", "train.strategy=partition_parallel", "use data_parallel or parallel_epochs"),
        ("heterosage", "train.self_training={rounds: 1}", "set self_training=null"),
        ("heterosage", "train.sampling=device", "set sampling=cpu"),
        ("heterosage", "model.label_reuse=true", "unknown key 'label_reuse'"),
        ("heterosage", "dataset.task=link", "predicts rows, and this is a link task"),
        ("heterosage", "train.loader.fanout=8,-2", "each 0 \\(none\\) or more, or -1"),
        ("heterosage", "train.loader.fanout={a__b__c: [1, 2]}", "needs `default`"),
        ("hgt", "model.heads=3", "does not divide hidden_dim"),
    ],
)
def test_what_does_not_go_together_is_refused_with_a_way_out(model: str, change: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        build_recipe({"name": "shop", "dataset": {"name": "synthetic"}, "model": model}, [change])


def test_fanouts_are_counted_and_their_relations_looked_for(tmp_path: Path) -> None:
    manifest = shop_graph(tmp_path).manifest
    for change, message in (
        ("train.loader.fanout=8", "has 1 numbers and the model has 2 layers; give one a layer, such as 8,8"),
        (
            "train.loader.fanout={default: [8, 8], orders__costumer__customers: [1, 1]}",
            "did you mean 'orders__customer",
        ),
        ("train.loader.eval_fanout={default: [8, 8, 8]}", "eval_fanout.default has 3 numbers"),
    ):
        made = recipe("heterosage", change)
        with pytest.raises(RecipeError, match=message):
            resolve_loader(made.train, made.model, manifest)
    made = recipe("heterosage", "train.loader.eval_fanout={default: [-1, 3], orders__customer__customers: [2, 1]}")
    found = resolve_loader(made.train, made.model, manifest).facts(made.model, manifest)
    assert found == {"fanouts": ((2, 1), *[(-1, 3)] * 5), "newest": True}


def test_models_are_made_of_the_manifest(tmp_path: Path) -> None:
    facts = graph_facts(shop_graph(tmp_path).manifest)
    assert (facts.label_type, facts.seed_type, facts.has_times) == (3, 0, True)
    assert facts.node_columns == ((0,), (1, 2), (3,), ())
    model: RelationalModel = MODELS.create(MODELS.config("heterosage"), facts)
    assert sorted(model.encoder.types) == ["0", "1", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["data_parallel", "parallel_epochs"])
def test_two_ranks_learn(tmp_path: Path, home: Any, strategy: str) -> None:
    """Also where a batch of one rank reaches relations that the other's does not: every weight has a gradient."""
    graph = shop_graph(tmp_path / "graph", num_customers=150)
    overrides = ["train.num_ranks=2", f"train.strategy={strategy}", "train.epochs=16", "train.eval_every=4"]
    made = recipe("heterosage", *overrides, "train.loader.fanout={default: [8, 4]}", "train.loader.choose=recent")
    outcome = run_stage(STAGE, made, {"partition": graph}, home)
    run: Any = outcome.manifest
    assert (run.world_size, run.epochs_run, run.strategy) == (2, 16, strategy)
    assert run.best_metric > 0.8
