from __future__ import annotations

import importlib
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sklearn.metrics
import torch

from configs.errors import DataError, RecipeError
from configs.label_types import label_type
from configs.metric_names import METRIC_NAMES, check_measured, hits_of
from configs.registry import EVALUATORS
from tasks.evaluators import metrics
from tasks.evaluators.evaluators import _BY_METRIC, Evaluator, Prediction, evaluator_for
from tasks.evaluators.ogb import ogb_evaluator_class
from tasks.evaluators.several import make_evaluator
from tasks.ranking.ranks import TripleRanks
from tasks.storage.manifests import GraphManifest
from tests.support import COMMON


def graph(task: str = "node", task_type: str = "multiclass", metric: str = "accuracy", ogb: str | None = None):
    return GraphManifest(
        **COMMON,
        files={},
        stage="preprocess",
        dataset=ogb or "test",
        task=task,
        task_type=task_type,
        num_classes=0,
        num_tasks=1,
        metric=metric,
        ogb_name=ogb,
        num_nodes=0,
        num_edges=0,
        symmetric=True,
        node_types=("node",),
        edge_types=(),
        target_type="node",
        type_offsets=(0, 0),
        feature_dim=0,
        splits={},
        arrays={},
    )


def evaluator(name: str, task_type: str = "multiclass", **options: object) -> Evaluator:
    task = task_type if task_type in ("link", "triple") else "node"
    return make_evaluator(EVALUATORS.config({"name": name, **options}), graph(task, task_type))


def auto(**fields: str) -> Evaluator:
    return make_evaluator(EVALUATORS.config("auto"), graph(**fields))


# ------------------------------------------------------------------ hand-worked


@pytest.mark.parametrize(
    ("task_type", "scores", "label", "expected"),
    [
        ("multiclass", [[2, 1], [0, 1], [5, 0], [0, 3]], [0, 1, 1, -1], 2 / 3),  # the last row has no label
        ("binary", [[0.1], [-0.1], [3]], [[1.0], [1.0], [np.nan]], 0.5),  # one logit, positive above zero
    ],
)
def test_accuracy(task_type: str, scores: Any, label: Any, expected: float) -> None:
    prediction = Prediction(np.array(scores, np.float32), np.array(label))
    assert evaluator("accuracy", task_type)(prediction) == {"accuracy": pytest.approx(expected)}


@pytest.mark.parametrize(("k", "expected"), [(2, 1 / 3), (4, 1.0)])
def test_hits_counts_a_tie_as_a_miss(k: int, expected: float) -> None:
    pairs = Prediction(positive=np.array([0.9, 0.5, 0.4], np.float32), negative=np.array([0.8, 0.5, 0.1], np.float32))
    assert evaluator("hits", "link", k=k)(pairs) == {f"hits@{k}": pytest.approx(expected)}


def test_rmse_and_mae_are_printed_positive_and_scored_negative() -> None:
    scores = np.array([[1.0], [2.0]], np.float32)
    label = np.array([[0.0], [4.0]], np.float32)
    r2 = evaluator("r2", "regression")
    assert r2(Prediction(label, label)) == {"r2": 1.0}
    assert r2(Prediction(np.full_like(label, 2), label)) == {"r2": 0.0}  # their own mean
    assert r2(Prediction(scores, label)) == {"r2": pytest.approx(1 - 5 / 8)}
    with pytest.raises(DataError, match="not defined"):
        r2(Prediction(np.ones((3, 1)), np.ones((3, 1))))
    rmse = evaluator("rmse", "regression")
    assert rmse(Prediction(scores, label)) == {"rmse": pytest.approx(np.sqrt(2.5))}
    assert rmse.score({"rmse": 2.0}) == -2.0
    assert not rmse.higher_is_better
    assert evaluator("mae", "regression")(Prediction(scores, label)) == {"mae": 1.5}


# ------------------------------------------------------------------ against scikit-learn


@pytest.mark.parametrize("num_classes", [2, 4])
@pytest.mark.parametrize("name", ["rocauc", "average_precision", "f1", "accuracy"])
def test_a_class_that_the_data_has_not_changes_no_formula(name: str, num_classes: int) -> None:
    """A model that knows one more, and never guesses it, is measured as if it did not."""
    rng = np.random.default_rng(0)
    label = np.append(
        np.arange(num_classes), rng.choice(num_classes, 300, p=[0.7, *[0.3 / (num_classes - 1)] * (num_classes - 1)])
    )
    scores = (rng.standard_normal((len(label), num_classes)) + np.eye(num_classes)[label]).astype(np.float32)
    more = np.concatenate([scores, scores.min(axis=1, keepdims=True) - 1], axis=1)
    one = evaluator(name)
    assert one(Prediction(scores=more, label=label, num_classes=num_classes)) == one(
        Prediction(scores=scores, label=label)
    )


def test_guessing_a_class_that_the_data_has_not_is_wrong_and_no_class_to_average_over() -> None:
    label = np.arange(200) % 2
    scores = np.full((200, 3), -5, np.float32)
    scores[np.arange(200), label] = 5
    scores[0, 2] = 9
    prediction = Prediction(scores=scores, label=label, num_classes=2)
    assert evaluator("accuracy")(prediction) == {"accuracy": 199 / 200}
    assert evaluator("f1", average="micro")(prediction) == {"f1_micro": 199 / 200}
    assert evaluator("f1")(prediction) == {"f1_macro": pytest.approx((198 / 199 + 1) / 2)}


@pytest.mark.parametrize("seed", range(8))
def test_binary_metrics_match_sklearn(seed: int) -> None:
    from sklearn import metrics as sk

    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 400))
    label = np.append(rng.integers(0, 2, n), [0, 1])
    score = rng.integers(0, rng.integers(2, 60), n + 2).astype(np.float32)  # many ties
    assert metrics.rocauc(label, score) == pytest.approx(sk.roc_auc_score(label, score))
    assert metrics.average_precision(label, score) == pytest.approx(sk.average_precision_score(label, score))


@pytest.mark.parametrize("at_a_time", [1, 7, 1 << 22])
@pytest.mark.parametrize("shape", [(1,), (400,), (93, 1), (93, 11)])
def test_metrics_of_pairs_match_sklearn_whatever_is_read_at_a_time(
    shape: tuple[int, ...], at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sklearn import metrics as sk

    monkeypatch.setattr(metrics, "_SCORES_AT_A_TIME", at_a_time)
    rng = np.random.default_rng(len(shape))
    for scores in (3, 40, 10**6):  # ties everywhere, some, hardly any
        positive = rng.integers(scores // 5, scores, 93).astype(np.float32)
        negative = rng.integers(0, scores - scores // 5, shape).astype(np.float32)
        label = np.repeat([1, 0], [positive.size, negative.size])
        every = np.concatenate([positive, negative.ravel()])
        prediction = Prediction(positive=positive, negative=negative)
        for name, theirs in (("rocauc", sk.roc_auc_score), ("average_precision", sk.average_precision_score)):
            (value,) = evaluator(name, "link")(prediction).values()
            assert value == pytest.approx(theirs(label, every), rel=1e-12)


def test_metrics_of_pairs_without_any_are_undefined() -> None:
    some, none = np.ones(2, np.float32), np.ones(0, np.float32)
    assert np.isnan(metrics.rocauc_of_pairs(some, none))
    assert np.isnan(metrics.rocauc_of_pairs(none, some))
    assert np.isnan(metrics.average_precision_of_pairs(none, some))
    assert metrics.average_precision_of_pairs(some, none) == 1


@pytest.mark.parametrize("metric", [metrics.rocauc_of_pairs, metrics.average_precision_of_pairs])
def test_metrics_of_pairs_need_no_copy_of_the_negatives(metric: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A split of ogbl-citation2 has 87 million of them, and each control is measured on all."""
    monkeypatch.setattr(metrics, "_SCORES_AT_A_TIME", 1 << 14)
    rng = np.random.default_rng(0)
    positive, negative = rng.standard_normal(2000, np.float32), rng.standard_normal((2000, 1000), np.float32)
    tracemalloc.start()
    metric(positive, negative)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < negative.nbytes / 8


@pytest.mark.parametrize("seed", range(4))
def test_class_metrics_match_sklearn(seed: int) -> None:
    from sklearn import metrics as sk

    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((257, 7)).astype(np.float32)
    label = rng.integers(0, 6, 257)  # class 6 never occurs but is predicted
    predicted = scores.argmax(1)
    for average in ("macro", "micro"):
        (value,) = evaluator("f1", average=average)(Prediction(scores, label)).values()
        assert value == pytest.approx(sk.f1_score(label, predicted, average=average, zero_division=0))
    np.testing.assert_array_equal(
        metrics.confusion_matrix(label, predicted, 7), sk.confusion_matrix(label, predicted, labels=range(7))
    )
    all_classes = rng.integers(0, 7, 257)
    probability = torch.softmax(torch.from_numpy(scores).double(), 1).numpy()
    assert evaluator("rocauc")(Prediction(scores, all_classes))["rocauc"] == pytest.approx(
        sk.roc_auc_score(all_classes, probability, multi_class="ovr", average="macro")
    )


@pytest.mark.parametrize("average", ["macro", "micro"])
def test_multilabel_f1_matches_sklearn(average: str) -> None:
    from sklearn import metrics as sk

    rng = np.random.default_rng(3)
    scores = rng.standard_normal((101, 5)).astype(np.float32)
    label = rng.integers(0, 2, (101, 5)).astype(np.float32)
    label[:, 4], scores[:, 4] = 0, -1  # a column with neither labels nor predictions
    (value,) = evaluator("f1", "multilabel", average=average)(Prediction(scores, label)).values()
    assert value == pytest.approx(sk.f1_score(label, scores > 0, average=average, zero_division=0))


@pytest.mark.parametrize(("n", "k"), [(1, 1), (17, 3), (4099, 5)])
def test_ranks_match_a_plain_loop(n: int, k: int) -> None:
    rng = np.random.default_rng(n)
    positive = rng.integers(0, 9, n).astype(np.float32)
    for negative in (rng.integers(0, 9, (n, k)).astype(np.float32), rng.integers(0, 9, k).astype(np.float32)):
        plain = []
        for i, score in enumerate(positive):
            row = negative if negative.ndim == 1 else negative[i]
            plain.append(1 + sum(row > score) + 0.5 * sum(row == score))
        np.testing.assert_allclose(metrics.ranks(positive, negative), plain)


# ------------------------------------------------------------------ against OGB


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *((f"ogbl-{pooled}", 1001) for pooled in ("ppa", "collab", "ddi", "vessel")),
        *((f"ogbl-{ranked}", (77, 30)) for ranked in ("citation2", "wikikg2")),
    ],
)
def test_metrics_of_links_match_ogb(name: str, shape: Any) -> None:
    rng = np.random.default_rng(0)
    ranked = isinstance(shape, tuple)
    positive = rng.integers(0, 50, shape[0] if ranked else 333).astype(np.float32)  # ties
    negative = rng.integers(0, 48, shape).astype(np.float32)
    theirs = ogb_evaluator_class("link")(name)
    values = theirs.eval({"y_pred_pos": torch.from_numpy(positive), "y_pred_neg": torch.from_numpy(negative)})
    metric = "mrr" if ranked else theirs.eval_metric
    for mine in (auto(task="link", task_type="link", ogb=name), auto(task="link", task_type="link", metric=metric)):
        found = mine(Prediction(positive=positive, negative=negative))
        assert mine.metric == metric
        for key, value in values.items() if ranked else [(metric, values[metric])]:
            assert found[key.removesuffix("_list")] == pytest.approx(float(np.mean(np.asarray(value))))


@pytest.mark.parametrize(("name", "task"), [("ogbn-arxiv", "node"), ("ogbg-ppa", "graph")])
def test_accuracy_matches_ogb(name: str, task: str) -> None:
    rng = np.random.default_rng(2)
    scores, label = rng.standard_normal((99, 37)).astype(np.float32), rng.integers(0, 37, 99)
    theirs = ogb_evaluator_class(task)(name).eval({"y_true": label[:, None], "y_pred": scores.argmax(1)[:, None]})
    assert auto(task=task, ogb=name)(Prediction(scores, label)) == {"accuracy": pytest.approx(theirs["acc"])}


@pytest.mark.parametrize(
    ("name", "task", "task_type", "own"),
    [
        ("ogbg-molhiv", "graph", "binary", "rocauc"),
        ("ogbg-moltox21", "graph", "multilabel", "rocauc"),
        ("ogbg-molpcba", "graph", "multilabel", "ap"),
        ("ogbg-molfreesolv", "graph", "regression", "rmse"),
        ("ogbn-proteins", "node", "multilabel", "rocauc"),
    ],
)
def test_column_metrics_match_ogb(name: str, task: str, task_type: str, own: str) -> None:
    theirs = ogb_evaluator_class(task)(name)
    rng = np.random.default_rng(1)
    shape = (211, theirs.num_tasks)
    scores = rng.standard_normal(shape).astype(np.float32)
    label = (rng.random(shape) < 0.4).astype(np.float32) if task_type != "regression" else scores * 2 + 1
    label[rng.random(shape) < 0.2] = np.nan
    if theirs.num_tasks > 1:
        label[:, 0] = 0  # OGB leaves such a column out
    expected = theirs.eval({"y_true": label, "y_pred": scores})[theirs.eval_metric]
    for mine in (auto(task=task, task_type=task_type, ogb=name), auto(task=task, task_type=task_type, metric=own)):
        assert mine(Prediction(scores, label))[own] == pytest.approx(expected, rel=1e-5)
        assert mine.higher_is_better is (own != "rmse")


def test_ogb_neither_prints_nor_starts_threads_nor_loads_its_readers() -> None:
    script = (
        "import socket, sys, threading\n"
        "socket.socket.connect = None\n"
        "from tasks.evaluators.ogb import ogb_evaluator_class\n"
        "for task, name in (('node', 'ogbn-arxiv'), ('link', 'ogbl-ddi'), ('graph', 'ogbg-molhiv')):\n"
        "    ogb_evaluator_class(task)(name)\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "assert not {'ogb', 'dgl', 'outdated'} & set(sys.modules)\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ------------------------------------------------------------------ triples


def triple_ranks() -> TripleRanks:
    return TripleRanks(better=np.array([0, 2, 9]), equal=np.array([1, 0, 2]), candidates=np.array([20, 20, 20]))


def test_triples_are_judged_by_the_middle_rank() -> None:
    # ranks 1..2 -> 1.5, 3, 10..12 -> 11
    result = evaluator("mrr", "triple")(Prediction(ranks=triple_ranks()))
    assert result == {
        "mrr": pytest.approx((1 / 1.5 + 1 / 3 + 1 / 11) / 3),
        "hits@1": 0,
        "hits@3": pytest.approx(2 / 3),
        "hits@10": pytest.approx(2 / 3),
        "mean_rank": pytest.approx((1.5 + 3 + 11) / 3),
        "mrr_optimistic": pytest.approx((1 + 1 / 3 + 1 / 10) / 3),
        "mrr_pessimistic": pytest.approx((1 / 2 + 1 / 3 + 1 / 12) / 3),
    }
    assert next(iter(result)) == "mrr"
    for k, share in ((1, 0), (2, 1 / 3), (10, 2 / 3), (11, 1)):
        assert evaluator("hits", "triple", k=k)(Prediction(ranks=triple_ranks())) == {f"hits@{k}": pytest.approx(share)}
    for mine in (
        auto(task="triple", task_type="triple", metric="mrr"),
        auto(task="triple", task_type="triple", ogb="ogbl-biokg"),
    ):
        assert mine(Prediction(ranks=triple_ranks())) == result


def test_mrr_of_triples_matches_ogb() -> None:
    rng = np.random.default_rng(5)
    positive, negative = rng.integers(4, size=50).astype(np.float32), rng.integers(4, size=(50, 9)).astype(np.float32)
    better, equal = (negative > positive[:, None]).sum(1), (negative == positive[:, None]).sum(1)
    theirs = ogb_evaluator_class("triple")("ogbl-biokg").eval(
        {"y_pred_pos": torch.from_numpy(positive), "y_pred_neg": torch.from_numpy(negative)}
    )
    mine = auto(task="triple", task_type="triple", ogb="ogbl-biokg")(
        Prediction(ranks=TripleRanks(better, equal, equal))
    )
    assert mine["mrr"] == pytest.approx(float(theirs["mrr_list"].mean()))
    for k in (1, 3, 10):
        assert mine[f"hits@{k}"] == pytest.approx(float(theirs[f"hits@{k}_list"].mean()))


def test_triples_without_ranks_are_refused() -> None:
    none = np.zeros(0, np.int64)
    for name in ("mrr", "hits"):
        with pytest.raises(DataError, match="no triples; there is nothing to rank"):
            evaluator(name, "triple")(Prediction(ranks=TripleRanks(none, none, none)))


# ------------------------------------------------------------------ refusals and contracts


def test_a_metric_that_does_not_fit_the_task_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"evaluate.evaluator=hits measures link.*leave it at auto"):
        evaluator("hits", "multiclass")
    with pytest.raises(RecipeError, match="works for OGB data sets only"):
        evaluator("ogb")
    with pytest.raises(DataError, match=r"unknown metric 'bleu'.*hits@K"):
        auto(metric="bleu")
    with pytest.raises(DataError, match="sequences of words"):
        auto(task="graph", ogb="ogbg-code2")


def test_diverged_scores_are_not_measured() -> None:
    scores = np.array([[np.nan, 1.0], [0.0, 1.0]], np.float32)
    with pytest.raises(RecipeError, match=r"1 of 4 scores.*learning_rate"):
        evaluator("accuracy")(Prediction(scores, np.array([0, 1])))
    with pytest.raises(RecipeError, match="diverged"):
        evaluator("mrr", "link")(Prediction(positive=np.array([np.inf]), negative=np.array([0.0])))


def test_a_split_without_labels_is_refused() -> None:
    scores = np.zeros((2, 2), np.float32)
    with pytest.raises(DataError, match="no labelled row"):
        evaluator("accuracy")(Prediction(scores, np.array([-1, -1])))
    with pytest.raises(DataError, match="not defined on this split"):
        evaluator("rocauc", "binary")(Prediction(scores[:, :1], np.ones((2, 1), np.float32)))
    with pytest.raises(DataError, match="nothing to rank"):
        evaluator("mrr", "link")(Prediction(positive=np.zeros(0), negative=np.zeros(3)))


def test_the_names_of_metrics_are_those_that_can_be_measured() -> None:
    assert set(METRIC_NAMES) == set(_BY_METRIC)
    assert [hits_of(f"hits@{k}") for k in (0, 1, 10**9, 10**9 + 1)] == [None, 1, 10**9, None]
    assert evaluator_for("hits@7") == {"name": "hits", "k": 7}


def test_ogb_waits_for_what_another_thread_imports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """scikit-learn looks for polars.DataFrame while MLflow's thread is importing polars."""
    (tmp_path / "polars.py").write_text(
        "import time\ntime.sleep(1)\nclass DataFrame: pass\nclass Series: pass\nclass LazyFrame: pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "polars", raising=False)
    evaluator = make_evaluator(EVALUATORS.config({"name": "ogb"}), graph("graph", "binary", "rocauc", "ogbg-molhiv"))
    importing = threading.Thread(target=importlib.import_module, args=("polars",))
    importing.start()
    while "polars" not in sys.modules:
        time.sleep(0.01)
    scores = np.array([[0.1], [0.9], [0.4]])
    assert evaluator(Prediction(scores=scores, label=np.array([[0.0], [1.0], [0.0]]))) == {"rocauc": 1.0}
    importing.join()
    del sys.modules["polars"]  # what was there before comes back with the test's end


@pytest.mark.parametrize("ties", [False, True])
def test_pr_auc_and_f1_of_pairs(ties: bool) -> None:
    """Of scikit-learn's curve by trapezoids; of as many pairs as there are edges."""
    rng = np.random.default_rng(0)
    positive, negative = rng.normal(0.7, 1, 37), rng.normal(0, 1, 61)
    if ties:
        positive, negative = positive.round(), negative.round()
    label, score = np.repeat([1, 0], [37, 61]), np.concatenate([positive, negative])
    precision, recall, _ = sklearn.metrics.precision_recall_curve(label, score)
    assert metrics.pr_auc_of_pairs(positive, negative) == pytest.approx(sklearn.metrics.auc(recall, precision))
    threshold = np.sort(score)[-37]
    assert metrics.f1_of_pairs(positive, negative) == pytest.approx(sklearn.metrics.f1_score(label, score >= threshold))


def test_links_by_relation_are_measured_in_each() -> None:
    """The mean over relations that have both edges and negatives, wherever the pairs lie among the others."""
    rng = np.random.default_rng(0)
    positive, negative = rng.normal(0.7, 1, 50), rng.normal(0, 1, 80)
    relations = rng.integers(0, 3, 50), rng.integers(0, 2, 80)
    graph: Any = SimpleNamespace(task_type="link", label_type=label_type("link"), dataset="some", heads=())
    prediction = Prediction(positive=positive, negative=negative, relations=relations)
    for name in ("rocauc", "average_precision", "pr_auc", "f1", "mrr"):
        evaluator = make_evaluator(EVALUATORS.config({"name": name}), graph)
        found = evaluator(prediction)
        each = [
            evaluator(Prediction(positive=positive[relations[0] == r], negative=negative[relations[1] == r]))
            for r in (0, 1)
        ]
        assert found == pytest.approx({key: (each[0][key] + each[1][key]) / 2 for key in each[0]})
        shifted = positive + 9 * relations[0], negative + 9 * relations[1]
        moved = Prediction(positive=shifted[0], negative=shifted[1], relations=relations)
        assert evaluator(moved) == pytest.approx(found)


def test_kinds_of_negatives_are_measured_one_by_one() -> None:
    rng = np.random.default_rng(0)
    positive, negative = rng.normal(0.7, 1, 40), rng.normal(0, 1, (40, 6)) + np.repeat([0, 1, 2], 2)
    graph: Any = SimpleNamespace(task_type="link", label_type=label_type("link"), dataset="some", heads=())
    prediction = Prediction(positive=positive, negative=negative, negative_kinds=("a", "b", "c"))
    for name in ("rocauc", "average_precision", "mrr"):
        evaluator = make_evaluator(EVALUATORS.config({"name": name}), graph)
        each = [evaluator(Prediction(positive=positive, negative=negative[:, i : i + 2])) for i in (0, 2, 4)]
        mean = {key: sum(values[key] for values in each) / 3 for key in each[0]}
        assert evaluator(prediction) == pytest.approx(mean)


def of_two_classes(rare: Any, score: Any) -> tuple[Prediction, Prediction]:
    """Return the same rows with the rare class as the second and as the first one."""
    none = np.zeros(len(score))
    return (
        Prediction(scores=np.stack([none, score], 1), label=rare),
        Prediction(scores=np.stack([score, none], 1), label=1 - rare),
    )


def test_average_precision_of_two_named_classes_is_that_of_the_rarer_one() -> None:
    """Which comes second follows from their names, and the common one's precision hides the rare one's."""
    rng = np.random.default_rng(0)
    rare = (rng.random(400) < 0.05).astype(np.int64)
    score = rare + rng.normal(size=400)
    evaluator = make_evaluator(EVALUATORS.config({"name": "average_precision"}), graph(task_type="multiclass"))
    second, first = (evaluator(prediction)["ap"] for prediction in of_two_classes(rare, score))
    assert second == pytest.approx(first)
    assert second == pytest.approx(sklearn.metrics.average_precision_score(rare, score))
    binary = make_evaluator(EVALUATORS.config({"name": "average_precision"}), graph(task_type="binary"))
    alone = binary(Prediction(scores=score[:, None], label=rare.astype(np.float64)[:, None]))["ap"]
    assert alone == pytest.approx(sklearn.metrics.average_precision_score(rare, score))


@pytest.mark.parametrize(("rows", "first"), [("1", 1), ("7", 7), ("100", 100), ("1%", 4), ("12.5%", 50), ("900", 401)])
def test_the_highest_scores_hold_so_many_positives(rows: str, first: int) -> None:
    rng = np.random.default_rng(first)
    rare = (rng.random(401) < 0.1).astype(np.int64)
    score = rng.permutation(401) + 100.0 * rare  # without ties
    found = rare[np.argsort(-score)[:first]].sum()
    wanted = {
        "precision": found / first,
        "recall": found / rare.sum(),
        "lift": found / first / rare.mean(),
    }
    for prediction in of_two_classes(rare, score):
        for metric, value in wanted.items():
            named = f"{metric}@{rows}"
            top = make_evaluator(EVALUATORS.config(evaluator_for(named)), graph(task_type="multiclass"))
            assert top(prediction) == {named: pytest.approx(value)}


def test_rows_that_tie_with_the_last_one_count_by_the_room_there_is() -> None:
    label, score = np.array([1.0, 0, 1, 0, 0, 1]), np.array([3.0, 2, 2, 2, 1, 0])
    assert metrics.positives_among(label, score, 1) == 1
    assert metrics.positives_among(label, score, 2) == pytest.approx(1 + 1 / 3)
    assert metrics.positives_among(label, score, 4) == 2
    assert metrics.positives_among(label, score, 6) == 3


@pytest.mark.parametrize("rows", ["0", "0%", "100%", "1.5", "-1", "x", "0.0%", "1e3"])
def test_rows_of_the_highest_scores_are_a_number_or_a_share(rows: str) -> None:
    with pytest.raises(ValueError, match="neither a number of rows"):
        EVALUATORS.config({"name": "top", "rows": rows})


@pytest.mark.parametrize("metric", ["lift@0.5%", "churn.lift@0.5%", "churn.hits@3", "churn.rocauc"])
def test_a_share_may_have_a_point_and_a_metric_its_task(metric: str) -> None:
    check_measured(metric)


def test_a_number_of_rows_need_not_be_a_text() -> None:
    assert EVALUATORS.config({"name": "top", "rows": 50}).rows == "50"


def test_precision_of_recommendations_is_still_of_each_list() -> None:
    assert evaluator_for("precision@5", is_ranking=True) == {"name": "ranking", "metric": "precision", "k": 5}
    assert evaluator_for("precision@5") == {"name": "top", "metric": "precision", "rows": "5"}
