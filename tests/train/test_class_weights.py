"""Weights of classes: counted on the whole training split, summed up alike whatever the batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from configs.errors import RecipeError
from configs.schema import STAGES, Recipe
from models.losses.chosen import loss_of, make_loss
from models.losses.configs import AutoLossConfig
from tasks.calls import StageRecord, call_stage, expected_key, load_stage
from tasks.inference.predictor import Predictor, evaluating
from tasks.stage import Parent
from tasks.storage.graph_store import ArrayWriter, GraphStore
from tasks.storage.home import Home
from tasks.train.families import trainings
from tasks.train.gradients.engine import GradientEngine
from tasks.train.job import Job
from tasks.train.labels.class_weights import class_weight_of, class_weights
from tasks.train.labels.learnt import training_facts
from tasks.train.prepared import check_labels
from tests.preprocess.ears import Ears
from tests.publish.line import customers, write_customers
from tests.ranked_shop import store_of
from tests.shop_graph import shop_graph
from tests.support import link_graph
from tests.train.in_process import make_engine, own_settings, run_engine
from tests.train.test_training import partition, recipe
from tests.train.test_typed_tasks import graph_of_several
from tests.train.test_typed_tasks import recipe as several_recipe


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    with own_settings():
        yield


def rare(folder: Path, share: int = 15) -> Parent:
    """A graph of two classes, of which one node in `share` is of class 1."""
    parent = partition(folder, num_classes=2)
    label = np.load(folder / "label.npy")
    label[:] = np.arange(len(label)) % share == 0
    np.save(folder / "label.npy", label)
    return parent


def job_of(wanted: Recipe, graph: Parent, work: Path, weights: Any = ()) -> Job:
    work.mkdir(parents=True, exist_ok=True)
    return Job.make(wanted, graph.folder, graph.manifest.digest, work, None, weights)


def labelled(parent: Parent, label: Any, **fields: Any) -> GraphStore:
    """The graph with other labels."""
    writer = ArrayWriter(parent.folder)
    writer.write("label", label)
    manifest = parent.manifest.model_copy(update={**fields, "arrays": {**parent.manifest.arrays, **writer.entries}})
    return GraphStore(parent.folder, manifest)


def test_all_classes_weigh_alike_where_balanced(tmp_path: Path) -> None:
    store, said = store_of(rare(tmp_path)), []
    train = store["label"][store.training_rows()]
    counts = np.bincount(train)
    ((weights,),) = class_weights("balanced", store, ["honest", "fraud"], said.append)
    assert np.array(weights) * counts == pytest.approx(len(train) / 2)
    assert said == [f"class weights: honest = {weights[0]:.4g}, fraud = {weights[1]:.4g}"]
    assert class_weights("none", store, None, said.append) == ()


def test_classes_are_named_as_in_the_data(tmp_path: Path) -> None:
    store, said = store_of(rare(tmp_path)), []
    names = ["honest", "fraud"]
    assert class_weights({"fraud": 20}, store, names, said.append) == (((1.0, 20.0),),)
    assert class_weights({"1": 3, "0": 0.5}, store, None, said.append) == (((0.5, 3.0),),)
    with pytest.raises(RecipeError, match=r"no class is called 'froud' \(did you mean 'fraud'\?\); there are honest"):
        class_weights({"froud": 20}, store, names, said.append)
    read = class_weight_of(recipe("node", "train.loss.class_weight={yes: 20}").train)
    with pytest.raises(RecipeError, match=r"called 'true'; there are no, yes; YAML reads .* write \{\"yes\": 20\}"):
        class_weights(read, store, ["no", "yes"], said.append)


def test_a_binary_label_is_named_as_yaml_reads_it(tmp_path: Path) -> None:
    parent = partition(tmp_path)
    label = (np.arange(300) % 10 == 0).astype(np.float32)[:, None]
    label[5] = np.nan
    store = labelled(parent, label, task_type="binary", num_classes=2)
    written = class_weight_of(recipe("node", "train.loss.class_weight={true: 9}").train)
    assert class_weights(written, store, None, lambda _: None) == (((1.0, 9.0),),)
    ((weights,),) = class_weights("balanced", store, None, lambda _: None)
    train = label[store.training_rows(), 0]
    assert weights[1] == pytest.approx(np.count_nonzero(~np.isnan(train)) / 2 / (train == 1).sum())


def test_a_class_that_no_training_row_has_is_said(tmp_path: Path) -> None:
    parent, said = partition(tmp_path, num_classes=4), []
    label = np.load(tmp_path / "label.npy")
    label[label == 3] = 2
    store = labelled(parent, label)
    ((weights,),) = class_weights("balanced", store, list("abcd"), said.append)
    assert weights[3] == 1
    assert said[1] == "train.loss.class_weight: the training split has no row of d, which no weight changes"
    counts = np.bincount(label[store.training_rows()])
    assert np.array(weights[:3]) * counts == pytest.approx(counts.sum() / 3)


def test_label_columns_are_balanced_one_by_one_and_not_named(tmp_path: Path) -> None:
    label = (np.arange(900).reshape(300, 3) % [4, 8, 1000] == 0).astype(np.float32)
    label[:, 2], said = 0, []
    store = labelled(partition(tmp_path), label, task_type="multilabel", num_tasks=3, num_classes=0)
    (weights,) = class_weights("balanced", store, None, said.append)
    for column, own in enumerate(weights[:2]):
        yes = label[store.training_rows(), column].mean()
        assert own == pytest.approx((0.5 / (1 - yes), 0.5 / yes))
    assert weights[2] == (1.0, 1.0)
    assert said == ["train.loss.class_weight: label columns with one value in training stay as they are: 2"]
    with pytest.raises(RecipeError, match=r"several labels a row; take train\.loss\.class_weight=balanced"):
        class_weights({"1": 2.0}, store, None, said.append)


def test_what_has_no_classes_has_no_weights(tmp_path: Path) -> None:
    values = np.zeros((300, 1), np.float32)
    store = labelled(partition(tmp_path / "r"), values, task_type="regression", num_classes=0)
    with pytest.raises(RecipeError, match="predicts no classes; leave it out"):
        class_weights("balanced", store, None, lambda _: None)
    links = link_graph(tmp_path / "l")
    with pytest.raises(RecipeError, match="predicts links"):
        class_weights("balanced", store_of(links), None, lambda _: None)


def test_of_several_tasks_each_class_is_balanced(tmp_path: Path) -> None:
    store, said = store_of(graph_of_several(tmp_path)), []
    binary, kinds, sizes = class_weights("balanced", store, None, said.append)
    assert (len(binary[0]), len(kinds[0]), sizes) == (2, 4, ())
    assert [text.partition(":")[0] for text in said] == ["class weights of good", "class weights of kind"]
    facts = training_facts(store)
    scores, target = torch.randn(37, 7), torch.full((37, 4), torch.nan)
    target[:, 1] = torch.randint(4, (37,)).float()
    weight = torch.tensor(kinds[0])
    loss = make_loss(AutoLossConfig(), "several", facts, [torch.tensor(binary), weight, None])(scores, target, 37)
    expected = 0.5 * (
        weight[target[:, 1].long()] * F.cross_entropy(scores[:, 1:5], target[:, 1].long(), reduction="none")
    )
    torch.testing.assert_close(loss, expected.mean())
    with pytest.raises(RecipeError, match="several labels a row"):
        class_weights({"1": 2.0}, store, None, said.append)


@pytest.mark.parametrize("task_type", ["multiclass", "binary"])
def test_batches_of_a_split_add_up_to_the_whole(task_type: str) -> None:
    torch.manual_seed(0)
    if task_type == "multiclass":
        scores, target, weight = torch.randn(40, 3), torch.randint(3, (40,)), torch.tensor([1.0, 2.0, 9.0])
        target[:4] = -1
    else:
        scores, target = torch.randn(40, 2), torch.randint(2, (40, 2)).float()
        target[:4], weight = torch.nan, torch.tensor([[1.0, 20.0], [0.5, 2.0]])
    weighed, plain = loss_of(task_type, None, weight), loss_of(task_type)
    whole = weighed(scores, target, 40)
    parts = [weighed(scores[i : i + 9], target[i : i + 9], 9) for i in range(4, 40, 9)]
    torch.testing.assert_close(torch.stack(parts).mean(), whole)
    alike = loss_of(task_type, None, torch.ones_like(weight))
    torch.testing.assert_close(alike(scores, target, 40), plain(scores, target, 40))


@pytest.mark.parametrize("loader", ["full", "neighbor", "random_partition"])
def test_a_rare_class_is_found_with_every_loader(tmp_path: Path, loader: str) -> None:
    """Without weights the model says the other one for every row."""

    def predicted(option: str, work: str) -> float:
        wanted = recipe(
            "node", f"train.loader={{name: {loader}}}", "train.epochs=12", f"train.loss.class_weight={option}"
        )
        graph = rare(tmp_path / "g")
        weights = class_weights(class_weight_of(wanted.train), store_of(graph), None, lambda _: None)
        engine: GradientEngine = make_engine(job_of(wanted, graph, tmp_path / work, weights))
        run_engine(engine)
        store = store_of(graph)
        with evaluating(engine.model):
            scores = Predictor(store).node_scores(engine.model, np.asarray(store["train_idx"], np.int64))
        return float((scores.argmax(1) == 1).mean())

    assert predicted("balanced", "balanced") > 2 * predicted("none", "none") + 0.1


def test_a_job_brings_its_weights_to_every_rank_and_other_weights_train_anew(tmp_path: Path) -> None:
    graph, wanted = rare(tmp_path / "g"), recipe("node", "train.loss.class_weight=balanced")
    made = [job_of(wanted, graph, tmp_path / str(weight), (((1.0, weight),),)) for weight in (2.0, 3.0)]
    assert made[0].digest != made[1].digest
    assert Job.load(made[0].save()).class_weights == (((1.0, 2.0),),)


def test_trainings_in_a_row_have_the_weights_of_the_training_split(tmp_path: Path) -> None:
    """Not those of what an earlier one predicts."""
    graph, wanted = rare(tmp_path / "g"), recipe("node", "train.self_training.rounds=2")
    job = job_of(wanted, graph, tmp_path / "w", (((1.0, 7.0),),))
    assert [one.class_weights for one in trainings(job)] == [(((1.0, 7.0),),)] * 3


def test_the_stage_knows_classes_by_the_names_that_the_data_has(tmp_path: Path, home: Home) -> None:
    """From the data set that was ingested, which is part of the training's name then."""
    write_customers(tmp_path / "data")
    keys: dict[str, str] = {}
    ears = Ears()

    def call(name: str, wanted: Recipe) -> StageRecord:
        parents = {parent: keys[parent] for parent in load_stage(name).parents}
        record = call_stage(name, wanted, home, parents, listener=ears)
        keys[name] = record.key
        return record

    wanted = customers(tmp_path / "data", "train.loss.class_weight={bad: 5}", "train.epochs=1")
    for name in STAGES[: STAGES.index("train")]:
        call(name, wanted)
    record = call("train", wanted)
    assert "class weights: bad = 5, good = 1" in ears.messages
    assert set(record.parents) == {"partition", "classes"}
    assert record.key != expected_key("train", customers(tmp_path / "data", "train.epochs=1"), keys, home)
    with pytest.raises(RecipeError, match="no class is called 'evil'"):
        check_labels(customers(tmp_path / "data", "train.loss.class_weight={evil: 5}"), keys, home)
    numbers = customers(tmp_path / "data", "train.loader={name: neighbor, balance: classes}", task_type="regression")
    for name in ("ingest", "preprocess"):
        call(name, numbers)
    with pytest.raises(RecipeError, match=r"balance=classes is for one class a row, .* \(regression\); leave it out$"):
        check_labels(numbers, keys, home)
    later = customers(tmp_path / "data", "train.loader=cluster", "partition.num_parts=4", task_type="regression")
    check_labels(later, keys, home)  # the graph has no parts yet


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("{fraud: 0}", "fraud=0: a weight is a number above 0"),
        ("{fraud: -2}", "fraud=-2: a weight is a number above 0"),
        ("{fraud: .nan}", "fraud=nan: a weight is a number above 0"),
        ("{fraud: .inf}", "fraud=inf: a weight is a number above 0"),
        ("{}", "no class is named"),
        ("often", "none, balanced, or names of classes and their weights"),
        ("3", "none, balanced, or names"),
    ],
)
def test_what_is_no_weight_is_refused(option: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        recipe("node", f"train.loss.class_weight={option}")


@pytest.mark.parametrize("kind", ["relational", "several", "graph"])
def test_rows_of_tables_several_tasks_and_graphs_are_weighed(tmp_path: Path, kind: str) -> None:
    """The loss of a batch is that of its scores and labels with the weights."""
    if kind == "graph":
        graph, wanted = partition(tmp_path / "g", "graph"), recipe("graph", "train.epochs=1")
    else:
        make = graph_of_several if kind == "several" else shop_graph
        graph, wanted = make(tmp_path / "g"), several_recipe("train.epochs=1")
    weights = class_weights("balanced", store_of(graph), None, lambda _: None)
    losses = []
    for given in ((), weights):
        engine = make_engine(job_of(wanted, graph, tmp_path / str(len(given)), given))
        engine.model.eval()
        batch = engine.batches.make(0)
        with torch.no_grad():
            losses.append(float(engine.optimization.loss(batch)))
            scores = engine.model(batch).float()
    assert losses[0] != pytest.approx(losses[1], rel=1e-6)
    if kind == "graph":
        ((own,),) = weights
        each = F.binary_cross_entropy_with_logits(scores, batch.target, reduction="none")
        expected = (each * torch.where(batch.target > 0.5, own[1], own[0])).mean()
        assert losses[1] == pytest.approx(float(expected), rel=1e-5)
    run_engine(engine)
