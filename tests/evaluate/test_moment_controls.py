"""Controls of rows that are predicted at moments: what they see, and that it is nothing later."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from configs.label_types import label_type
from tasks.controls import boosting
from tasks.controls.boosting import Goal, LabelledRows
from tasks.controls.entities import EntityRows
from tasks.controls.labels import LabelControls
from tasks.evaluators import metrics
from tasks.evaluators.prediction import Prediction
from tasks.stage import Parent
from tasks.storage.graph_store import ALWAYS, GraphStore
from tests.shop_graph import DAY, MOMENTS, shop_graph

RNG = np.random.default_rng(0)


def rows_of(parent: Parent, scratch: Path) -> EntityRows:
    scratch.mkdir()
    store = GraphStore(parent.folder, parent.manifest)
    rows = np.sort(np.concatenate([store[f"{split}_idx"] for split in ("train", "valid", "test")]))
    return EntityRows(store, rows.astype(np.int64), scratch)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_entities_are_described_as_of_their_moments(tmp_path: Path, dtype: Any) -> None:
    """Against plain loops over all edges."""
    parent = shop_graph(tmp_path / "graph", num_customers=23, orders_a_customer=9, dtype=dtype)
    found = rows_of(parent, tmp_path / "scratch")
    store = GraphStore(parent.folder, parent.manifest)
    indptr, indices, kind = store["csc_indptr"], store["csc_indices"], store["edge_type"]
    time, feat = store["node_time"], np.asarray(store["feat"], np.float32)
    for i in range(0, len(found.rows), 7):
        task = int(found.rows[i])
        moment = int(time[task])
        entity = int(indices[indptr[task]])
        age = np.nan if time[entity] == ALWAYS else (moment - time[entity]) / DAY
        np.testing.assert_allclose(found.numbers[i], [feat[entity, 0], age], rtol=1e-5)
        orders = [
            int(indices[e])
            for e in range(indptr[entity], indptr[entity + 1])
            if kind[e] == 0 and store["edge_time"][e] < moment
        ]
        expected = [len(orders), np.nan, np.nan, np.nan]
        if orders:
            expected[1] = (moment - max(time[order] for order in orders)) / DAY
            expected[2:] = feat[orders, 1:3].mean(0)
        np.testing.assert_allclose(found.nearby[i], expected, rtol=1e-4, atol=1e-5)
    assert found.codes.shape[1] == 0


def test_controls_see_nothing_later_than_the_moments(tmp_path: Path) -> None:
    one = rows_of(shop_graph(tmp_path / "a"), tmp_path / "scratch-a")
    other = rows_of(shop_graph(tmp_path / "b", changed_after=MOMENTS[2]), tmp_path / "scratch-b")
    store = GraphStore(tmp_path / "a", shop_graph(tmp_path / "a").manifest)
    early = np.asarray(store["node_time"])[one.rows] <= MOMENTS[2]
    for name in ("numbers", "codes", "nearby"):
        np.testing.assert_array_equal(getattr(one, name)[early], getattr(other, name)[early])
    assert not np.array_equal(one.nearby[~early], other.nearby[~early])


def test_controls_of_tasks_are_fitted_and_measured(tmp_path: Path) -> None:
    """The label of this shop is by the orders' mean amount before the moment: trees with counts and means find it."""
    parent = shop_graph(tmp_path / "graph", num_customers=150)
    store = GraphStore(parent.folder, parent.manifest)
    found = rows_of(parent, tmp_path / "scratch")
    label = np.array(store["label"])
    label[found.rows] = np.nan_to_num(found.nearby[:, 2]) > 0
    store._open["label"] = label
    dataset = SimpleNamespace(manifest=SimpleNamespace(tables={}))
    graph: Any = SimpleNamespace(store=store, scratch=tmp_path, entities=None, dataset=dataset)
    controls = LabelControls(graph, 1, label)
    test = np.asarray(store["test_idx"])
    prediction = Prediction(scores=np.zeros((len(test), 1), np.float32), label=label[test])

    def measure(one: Prediction) -> dict[str, float]:
        assert one.scores is not None
        return {"rocauc": metrics.rocauc(label[test].reshape(-1, 1), one.scores)}

    measured = {name: values["rocauc"] for name, values in controls.measured("test", prediction, measure)}
    assert set(measured) == {"majority", "features", "boosted"}
    assert measured["boosted"] > 0.95
    assert measured["features"] < 0.7


@pytest.mark.parametrize("task_type", ["binary", "multiclass", "regression"])
def test_trees_find_what_no_line_does(task_type: str) -> None:
    x = RNG.standard_normal((3000, 3)).astype(np.float32)
    x[::11, 2] = np.nan
    truth = (x[:, 0] > 0) ^ (x[:, 1] > 0)
    label: Any = {
        "binary": truth.astype(np.float32)[:, None],
        "multiclass": truth + 2 * (x[:, 0] > 1),
        "regression": (x[:, 0] * x[:, 1])[:, None].astype(np.float32),
    }[task_type]
    label[:100] = -1 if label.dtype.kind == "i" else np.nan
    num_scores = 4 if task_type == "multiclass" else 1
    goal = Goal(label_type(task_type), num_scores, "mae" if task_type == "regression" else "accuracy", threads=1)
    train, valid, rest = slice(0, 2000), slice(2000, 2500), slice(2500, None)
    model = boosting.fit(LabelledRows(x[train], label[train]), LabelledRows(x[valid], label[valid]), [], goal)
    scores = model(x[rest])
    assert scores.shape == (500, num_scores)
    if task_type == "regression":
        assert np.abs(scores - label[rest]).mean() < 0.3 * np.abs(label[rest]).mean()
    elif task_type == "binary":
        assert ((scores[:, 0] > 0) == truth[rest]).mean() > 0.95
    else:
        assert (scores.argmax(1) == label[rest]).mean() > 0.9


@pytest.mark.parametrize(
    ("task_type", "num_scores", "label", "scores"),
    [
        ("multiclass", 4, [2, 2, 2], [0, 0, 1, 0]),
        ("binary", 1, [1.0, 1.0], [1]),
        ("binary", 1, [0.0, 0.0], [-1]),
        ("regression", 1, [2.5, 2.5], [2.5]),
    ],
)
def test_labels_of_one_value_are_predicted_as_that(
    task_type: str, num_scores: int, label: list[float], scores: list[float]
) -> None:
    sample = boosting.LabelledRows(np.zeros((len(label), 2), np.float32), np.array(label))
    nobody = boosting.LabelledRows(sample.x[:0], sample.label[:0])
    found = boosting.fit(sample, nobody, [], boosting.Goal(label_type(task_type), num_scores, "accuracy", 1))
    np.testing.assert_array_equal(found(np.zeros((3, 2), np.float32)), np.tile(np.float32(scores), (3, 1)))


@pytest.mark.parametrize("task_type", ["multilabel", "regression"])
def test_trees_of_several_labels_are_those_of_each(task_type: str) -> None:
    x = RNG.standard_normal((900, 3)).astype(np.float32)
    label = np.stack([x[:, 0] > 0, x[:, 1] > 0.5], 1).astype(np.float32)
    label[::7, 1] = np.nan
    samples = LabelledRows(x[:600], label[:600]), LabelledRows(x[600:], label[600:])
    goal = Goal(label_type(task_type), 2, "rocauc", threads=1)
    found = boosting.fit_columns(*samples, [], goal)(x)
    kind = "binary" if task_type == "multilabel" else task_type
    for column in range(2):
        own = [LabelledRows(sample.x, sample.label[:, column]) for sample in samples]
        alone = boosting.fit(own[0], own[1], [], Goal(label_type(kind), 1, "rocauc", threads=1))
        np.testing.assert_array_equal(found[:, column : column + 1], alone(x))


def test_an_end_is_described_as_of_its_row(tmp_path: Path) -> None:
    """Orders are predicted: how many orders their customer and product had before, when the last was, and their means.

    Against plain loops over all orders.
    """
    parent = shop_graph(tmp_path / "graph", 11, 9, target_type="orders", own_keys=(3, 4))
    store = GraphStore(parent.folder, parent.manifest)
    orders = np.flatnonzero(np.asarray(store["node_type"]) == 1)
    (tmp_path / "scratch").mkdir()
    found = EntityRows(store, orders, tmp_path / "scratch")
    indptr, indices, kind = store["csc_indptr"], store["csc_indices"], store["edge_type"]
    time, feat = np.asarray(store["node_time"]), np.asarray(store["feat"])

    def sources(node: int, relation: int) -> list[int]:
        return [int(indices[e]) for e in range(indptr[node], indptr[node + 1]) if kind[e] == relation]

    for i in range(0, len(orders), 5):
        order, cut = int(orders[i]), time[orders[i]]
        [customer], [product] = sources(order, 3), sources(order, 4)
        age = np.nan if time[customer] == ALWAYS else (cut - time[customer]) / DAY
        expected = [1, age, feat[customer, 0], 1, np.nan, feat[product, 3]]
        for end, relation in ((customer, 0), (customer, 2), (product, 1)):
            before = [one for one in sources(end, relation) if time[one] < cut]
            newest = (cut - max(time[one] for one in before)) / DAY if before else np.nan
            means = feat[before, 1:3].mean(0) if before else [np.nan, np.nan]
            expected += [len(before), newest, *(means if relation != 2 else [])]  # visits have no numbers
        np.testing.assert_allclose(found.nearby[i], expected, rtol=1e-4, atol=1e-5)
        assert found.end_codes[i].tolist() == store["feat_cat"][product].tolist()
