"""What a training learns from: labels in their units, labels as inputs, and predicted ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import RecipeError
from configs.load import build_recipe
from configs.registry import MODELS
from configs.training import TrainConfig
from models.base import GraphModel
from models.block import Batch
from models.facts import GraphFacts
from tasks.apply.model.files import load_published, write_model
from tasks.evaluators.metrics import rmse
from tasks.inference.predictor import Predictor
from tasks.kinds.of import predict
from tasks.sampling.rows.features import FeatureSource
from tasks.sampling.rows.labels import label_scale
from tasks.stage import Listener, Parent, run_stage
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.manifests import ArrayEntry
from tasks.train import stage
from tasks.train.gradients.family import check_self_training, trainings
from tasks.train.job import BEST, RESULT, Job
from tasks.train.labels.learnt import training_facts, with_predicted_labels
from tasks.train.loaders.base import Loader
from tasks.train.ranks import launch
from tasks.train.run import Bookkeeper
from tasks.train.stage import STAGE
from tasks.train.state import checkpoint
from tasks.train.strategies.base import Ranks
from tasks.train.warm import earlier as warm_model
from tasks.train.warm.earlier import DoesNotFitError, _earlier_scale
from tests.loaders import make_loader
from tests.ranked_shop import store_of
from tests.support import as_partition, molecule_graph, node_graph, written
from tests.train.in_process import make_engine, make_job, own_settings, run_engine, train_here
from tests.train.test_training import partition, recipe, records

FACTS = GraphFacts("node", 2, 4, feature_dim=3, label_mean=(100.0, 0.0), label_scale=(20.0, 1.0))


def regression(folder: Path, task: str = "node", factor: float = 1.0, offset: float = 0.0) -> Parent:
    """A graph whose label follows its nodes' features and neighbours, or how many nodes it has; some lack one."""
    graph = node_graph(folder) if task == "node" else molecule_graph(folder)
    rng = np.random.default_rng(3)
    if task == "node":
        value = np.load(folder / "label.npy") + np.load(folder / "feat.npy")[:, 0] / 4
    else:
        value = np.diff(np.load(folder / "graph_offsets.npy")) / 3
    label = (factor * np.stack([value, rng.standard_normal(len(value))], 1) + offset).astype(np.float32)
    label[rng.random(label.shape) < 0.1] = np.nan
    name = "label" if task == "node" else "graph_label"
    np.save(folder / f"{name}.npy", label)
    entry = graph.manifest.arrays.get(name)
    entry = entry.model_copy(update={"dtype": "float32", "shape": label.shape})
    changes = {"task_type": "regression", "num_classes": 0, "num_tasks": 2, "metric": "rmse"}
    arrays = {**graph.manifest.arrays, name: entry}
    return written(graph, **changes, arrays=arrays)


def train(graph: Parent, work: Path, *overrides: str) -> GraphModel:
    """The best model of a short training."""
    task = graph.manifest.task
    sections = {
        "name": "test",
        "dataset": {"name": "synthetic"},
        "model": {"name": "graphsage" if task == "node" else "gin", "hidden_dim": 16, "num_layers": 2, "dropout": 0},
        "train": {"epochs": 12, "loader": {"name": "auto", "batch_size": 32}, "threads": 1, "learning_rate": 0.02},
    }
    with own_settings():
        engine = make_engine(make_job(build_recipe(sections, overrides), graph, work))
        run_engine(engine)
    return checkpoint.load_model(work / BEST)


def predicted(model: GraphModel, graph: Parent) -> tuple[np.ndarray, np.ndarray]:
    found = predict(Predictor(store_of(graph)), model, "valid")
    return found.scores, found.label


def test_mean_and_deviation_of_the_labels_that_exist() -> None:
    labels = np.array([[1e6, 5, np.nan], [np.nan, 5, np.nan], [1e6 + 2, 5, np.nan], [77, 7, 7]], np.float32)
    mean, scale = label_scale(labels, np.array([0, 1, 2]))
    assert mean.tolist() == [1e6 + 1, 5, 0]
    assert scale.tolist() == [1, 1, 1]  # a constant label and one that nobody has too
    mean, scale = label_scale(labels, np.array([0, 3]))
    assert scale[0] == pytest.approx((1e6 - 77) / 2)


@pytest.mark.parametrize("task", ["node", "graph"])
def test_the_units_of_labels_change_nothing_but_the_units(tmp_path: Path, task: str) -> None:
    found = {}
    for factor, offset in ((1, 0), (64, 0), (64, 1510)):
        graph = regression(tmp_path / f"{factor}-{offset}", task, factor, offset)
        scores, label = predicted(train(graph, tmp_path / f"work-{factor}-{offset}", "train.epochs=6"), graph)
        assert rmse(label[:, :1], scores[:, :1]) < 1.2 * np.nanstd(label[:, 0])  # about the mean, wherever that is
        found[factor, offset] = scores
    np.testing.assert_array_equal(found[64, 0], 64 * found[1, 0])  # a power of two rounds nothing


def test_the_scale_travels_with_the_model(tmp_path: Path) -> None:
    graph = regression(tmp_path / "graph", factor=50, offset=1510)
    model = train(graph, tmp_path / "work", "train.epochs=1")
    facts = training_facts(store_of(graph))
    assert model.facts == facts
    assert facts.label_scale[0] > 40
    write_model(tmp_path / "files", tmp_path / "work" / BEST, "m", {}, {})
    np.testing.assert_array_equal(predicted(load_published(tmp_path / "files"), graph)[0], predicted(model, graph)[0])
    described = json.loads((tmp_path / "files" / "model.json").read_text())["facts"]
    assert described["label_mean"] == list(facts.label_mean)


def test_a_resumed_training_keeps_its_units(tmp_path: Path) -> None:
    """Those of a warm start are not those of its own labels."""
    graph = regression(tmp_path / "graph")
    recipe: dict[str, Any] = {
        "name": "test",
        "dataset": {"name": "synthetic"},
        "model": {"name": "gcn", "hidden_dim": 8, "num_layers": 1},
        "train": {"epochs": 2, "threads": 1},
    }
    with own_settings():
        job = make_job(build_recipe(recipe), graph, tmp_path / "work")
        engine = make_engine(job)
        engine.model.scale_labels((7.0, 8.0), (2.0, 3.0))
        Bookkeeper(engine).save()
        assert make_engine(job).model.label_units == ([7.0, 8.0], [2.0, 3.0])


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        ({"label_mean": [90.0, 0.0], "label_scale": [30.0, 1.0]}, ([90.0, 0.0], [30.0, 1.0])),
        ({"label_mean": [100.0, 0.0], "label_scale": [1.0, 1.0]}, None),
        ({"label_mean": [1000.0, 0.0], "label_scale": [20.0, 1.0]}, None),
    ],
)
def test_a_warm_start_keeps_the_earlier_units_while_they_are_near(
    earlier: dict[str, Any], expected: tuple[list[float], list[float]] | None
) -> None:
    if expected is None:
        with pytest.raises(DoesNotFitError, match=r"it learnt labels of .* and now they are 100 ± 20"):
            _earlier_scale(FACTS, earlier)
    else:
        assert _earlier_scale(FACTS, earlier) == expected
    classes = replace(FACTS, label_mean=(), label_scale=())
    assert _earlier_scale(classes, {}) is None


def test_a_warm_start_answers_as_the_earlier_model_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = train(regression(tmp_path / "earlier", factor=50, offset=1510), tmp_path / "work", "train.epochs=1")
    graph = regression(tmp_path / "graph", factor=60, offset=1600)
    store = store_of(graph)
    model: GraphModel = MODELS.create(earlier.config, training_facts(store))
    assert model.label_units != earlier.label_units
    # Whether all else fits is tested with snapshots.
    monkeypatch.setattr(warm_model, "_fitted", lambda model, warm, store, state: state)
    checkpoint_file: Any = SimpleNamespace(checkpoint=tmp_path / "work" / BEST)
    assert warm_model.begin_warm(model, checkpoint_file, store, Ranks()) == ""
    assert model.label_units == earlier.label_units
    np.testing.assert_array_equal(predicted(model.eval(), graph)[0], predicted(earlier, graph)[0])


def test_scores_in_half_precision_keep_the_digits_of_the_mean() -> None:
    model: GraphModel = MODELS.create(MODELS.config({"name": "gcn", "hidden_dim": 4, "num_layers": 1}), FACTS)
    vectors = torch.randn(50, 4)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        half = model.score(vectors)
    assert half.dtype == torch.float32
    assert len(half[:, 0].unique()) > 25  # bfloat16 knows every half between 64 and 128
    torch.testing.assert_close(half, model.score(vectors), atol=0.3, rtol=0)
    torch.testing.assert_close(model.standardized(half), (half - torch.tensor([100.0, 0])) / torch.tensor([20.0, 1]))


def opened(folder: Path) -> GraphStore:
    return store_of(written(node_graph(folder), 0, 100, 200))


def first_batch(loader: Loader) -> Batch:
    if loader.num_batches is not None:
        return loader.epoch_batch(0, 0, 7)
    return loader.batch(np.arange(loader.num_seeds if loader.whole_split else 20), 7)


@pytest.mark.parametrize("name", ["neighbor", "full", "cluster", "random_partition"])
def test_asked_nodes_hide_their_labels_and_others_of_the_training_split_show_theirs(tmp_path: Path, name: str) -> None:
    store = opened(tmp_path)
    options = {"random_partition": {"num_clusters": 3}}.get(name, {})
    model = MODELS.create(
        MODELS.config({"name": "graphsage", "num_layers": 2, "label_reuse": True}), graph_facts(store.manifest)
    )
    batch = first_batch(make_loader(name, store, FeatureSource.of(store, model), model, **options))

    label, nodes = batch.inputs.label, batch.inputs.node_ids.numpy()
    asked = np.arange(batch.num_seeds) if batch.rows is None else batch.rows.numpy()
    assert len(asked)
    assert (label.numpy()[asked] == -1).all()
    assert (batch.target.numpy() == store["label"][nodes[asked]]).all()
    known = np.flatnonzero(label.numpy() >= 0)
    assert len(known), "nothing is reused"
    assert (label.numpy()[known] == store["label"][nodes[known]]).all()
    assert np.isin(nodes[known], store["train_idx"]).all(), "a label of another split is read"


def test_inference_reads_all_training_labels_and_no_others(tmp_path: Path) -> None:
    store = opened(tmp_path)
    config = MODELS.config({"name": "graphsage", "num_layers": 2, "label_reuse": True, "hidden_dim": 8})
    torch.manual_seed(0)
    model = MODELS.create(config, graph_facts(store.manifest))
    source = FeatureSource.of(store, model)
    assert (np.flatnonzero(source.label >= 0) == np.sort(store["train_idx"])).all()
    nodes = np.asarray(store["valid_idx"], np.int64)
    whole = Predictor(store).node_scores(model, nodes)
    layered = Predictor(store, whole_graph_bytes=0, chunk_edges=50).node_scores(model, nodes)
    np.testing.assert_allclose(whole, layered, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("loader", ["full", "cluster"])
def test_a_model_learns_from_labels(tmp_path: Path, loader: str) -> None:
    parent = written(node_graph(tmp_path / "graph"), 0, 100, 200)
    options = ("model.label_reuse=true", f"train.loader={loader}", "train.epochs=30")
    job = make_job(recipe("node", *options), parent, tmp_path / "work")
    train_here(job)
    lines = records(job.work)
    losses = [line["train/loss"] for line in lines if "train/loss" in line]
    assert losses[-1] < 0.7 * losses[0]


def test_numbers_are_no_labels_to_read(tmp_path: Path, home: Home) -> None:
    parent = partition(tmp_path / "g")
    graph = Parent(parent.manifest.model_copy(update={"task_type": "regression"}), parent.folder)
    with pytest.raises(RecipeError, match=r"model\.label_reuse reads classes, and this is a regression"):
        run_stage(STAGE, recipe("node", "model.label_reuse=true"), {"partition": graph}, home)


MIN_PROBABILITY = 0.5
SECTIONS = {
    "name": "rounds",
    "dataset": {"name": "synthetic"},
    "model": {"name": "graphsage", "hidden_dim": 8, "num_layers": 2},
    "train": {
        "self_training": {"rounds": 2, "min_probability": MIN_PROBABILITY},
        "loader": "full",
        "epochs": 3,
        "learning_rate": 0.01,
        "device": "cpu",
        "threads": 1,
    },
}


@pytest.fixture
def graph(tmp_path: Path) -> tuple[GraphStore, GraphModel, Path]:
    """Return a graph, a teacher with opinions, and its checkpoint."""
    store = store_of(as_partition(node_graph(tmp_path / "g")))
    torch.manual_seed(0)
    model: GraphModel = MODELS.create(
        MODELS.config({"name": "graphsage", "hidden_dim": 8, "num_layers": 2}), graph_facts(store.manifest)
    )
    path = tmp_path / "best.pt"
    checkpoint.save_atomic(checkpoint.best_state(model, "digest", 1, 0.5), path)
    return store, model, path


def test_sure_nodes_join_the_training_split(graph: tuple[GraphStore, GraphModel, Path]) -> None:
    store, model, path = graph
    more = with_predicted_labels(store, path, MIN_PROBABILITY)
    train = np.asarray(store["train_idx"])
    others = np.setdiff1d(np.arange(store.manifest.num_nodes), train)
    likely = torch.from_numpy(Predictor(store).node_scores(model, others)).softmax(1).numpy()
    sure = likely.max(1) >= MIN_PROBABILITY
    assert 0 < sure.sum() < len(others), "the limit is not tried"
    assert sorted(more["train_idx"]) == sorted([*train, *others[sure]])
    np.testing.assert_array_equal(more["label"][train], store["label"][train])
    np.testing.assert_array_equal(more["label"][others[sure]], likely.argmax(1)[sure])
    assert (more["label"][others[~sure]] == -1).all()
    np.testing.assert_array_equal(more["feat"], store["feat"])
    assert len(store["train_idx"]) == len(train), "the graph itself stays as it is"


def test_labels_of_other_splits_change_nothing(graph: tuple[GraphStore, GraphModel, Path], tmp_path: Path) -> None:
    store, _, path = graph
    label = np.array(store["label"])
    others = np.setdiff1d(np.arange(len(label)), store["train_idx"])
    label[others] = 0
    np.save(store.folder / "label.npy", label)
    changed = GraphStore(store.folder, store.manifest)
    assert (changed["label"][others] == 0).all()
    np.testing.assert_array_equal(
        with_predicted_labels(store, path, MIN_PROBABILITY)["label"],
        with_predicted_labels(changed, path, MIN_PROBABILITY)["label"],
    )


def test_nodes_of_other_types_get_no_labels(graph: tuple[GraphStore, GraphModel, Path]) -> None:
    """There is nothing to be sure of: only one type has classes."""
    store, _, path = graph
    types = (np.arange(store.manifest.num_nodes) % 3 == 1).astype(np.int16)
    types[store["train_idx"]] = 1
    np.save(store.folder / "node_type.npy", types)
    entry = ArrayEntry(path="node_type.npy", dtype="int16", shape=types.shape)
    several = {"node_types": ("author", "paper"), "target_type": "paper"}
    arrays = {**store.manifest.arrays, "node_type": entry}
    mixed = GraphStore(store.folder, store.manifest.model_copy(update={**several, "arrays": arrays}))
    plain, more = (
        with_predicted_labels(store, path, MIN_PROBABILITY),
        with_predicted_labels(mixed, path, MIN_PROBABILITY),
    )
    assert (types[plain["train_idx"]] == 0).any(), "nothing would be kept out"
    np.testing.assert_array_equal(more["train_idx"], [v for v in plain["train_idx"] if types[v] == 1])
    assert (more["label"][types == 0] == -1).all()


def test_refusals(graph: tuple[GraphStore, GraphModel, Path], tmp_path: Path) -> None:
    store, _, _ = graph
    train = TrainConfig(self_training={"rounds": 1})
    check_self_training(train, store.manifest)
    molecules = as_partition(molecule_graph(tmp_path / "m")).manifest
    check_self_training(TrainConfig(), molecules)
    with pytest.raises(RecipeError, match=r"train\.self_training is for one class a node"):
        check_self_training(train, molecules)


def test_rounds_follow_each_other_and_finished_ones_are_kept(tmp_path: Path, home: Home) -> None:
    parent = written(node_graph(tmp_path / "g"))
    heard = Heard()
    outcome = run_stage(STAGE, build_recipe(SECTIONS), {"partition": parent}, home, listener=heard)
    assert [text for text in heard.texts if text.startswith("training ")] == [f"training {i} of 3" for i in (1, 2, 3)]
    assert set(outcome.manifest.files) == {"best.pt", "last.pt", "metrics.jsonl"}
    assert outcome.manifest.rows > 3 * len(store_of(parent)["train_idx"])


@pytest.mark.parametrize("teacher", [b"", b"damaged"], ids=["whole", "damaged"])
def test_finished_rounds_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, teacher: bytes) -> None:
    """But for one whose outcome cannot be read."""
    parent = as_partition(node_graph(tmp_path / "g"))
    job = Job.make(build_recipe(SECTIONS), parent.folder, "graph", tmp_path / "work")
    first, second, last = trainings(job)
    assert first.teacher is None
    assert [second.teacher, last.teacher] == [first.work / BEST, second.work / BEST]
    assert last.work == job.work
    assert len({round_.digest for round_ in (first, second, last)}) == 3
    ran: list[Path] = []

    def attempt(job: Job, *_: Any) -> int:
        ran.append(job.work)
        (job.work / RESULT).write_text("{}")
        return 0

    monkeypatch.setattr(launch, "_run_once", attempt)
    first.work.mkdir(parents=True)
    (first.work / RESULT).write_text("{}")
    torch.save({}, first.work / BEST)
    if teacher:
        (first.work / BEST).write_bytes(teacher)
    context: Any = SimpleNamespace(message=print, warn=print, home=Home(tmp_path))
    done = stage._run_all([first, second, last], context, build_recipe(SECTIONS), parent.manifest)
    assert done == {"restarts": 0, "machines": []}
    assert ran == [*([first.work] if teacher else []), second.work, last.work]


class Heard(Listener):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, *said: str) -> None:
        self.texts.append(said[-1])
