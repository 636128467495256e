"""Transforms: what they learn, on which rows, and that nothing is computed twice."""

from __future__ import annotations

import pickle
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from configs.errors import DataError, RecipeError
from configs.registry import TRANSFORMS
from tasks.preprocess.transforms.columns import Log1p

NODE = ("node", "to", "node")
N = 60


@pytest.fixture
def table() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "a": rng.gamma(2.0, 100.0, N).astype(np.float32),
        "b": (rng.standard_normal((N, 3)) * 5 + 1000).astype(np.float32),
        "constant": np.full(N, 0.1, np.float32),
    }


@pytest.fixture
def edges() -> dict[str, Any]:
    src, dst = np.random.default_rng(1).integers(0, N, (2, 150))
    return {"src": src, "dst": dst}


@pytest.fixture
def dataset(make_dataset: Any, node_splits: Any, table: Any, edges: Any) -> Any:
    return make_dataset({"node": (N, table)}, {NODE: edges}, node_splits(N))


TRAIN = np.arange(0, N, 3)


def columns(table: dict[str, Any]) -> np.ndarray:
    return np.concatenate([np.asarray(x).reshape(N, -1) for x in table.values()], 1)


def test_without_transforms_features_are_the_table(dataset: Any, preprocess: Any, table: Any) -> None:
    graph = preprocess(dataset)
    np.testing.assert_array_equal(graph["feat"], columns(table))
    assert graph["feat"].dtype == np.float32
    assert graph.manifest.feature_dim == 5


def test_standardize_learns_from_training_rows_only(dataset: Any, preprocess: Any, table: Any) -> None:
    feat = preprocess(dataset, transforms=["standardize"])["feat"]
    x = columns(table).astype(np.float64)[:, :4]
    mean, std = x[TRAIN].mean(0), x[TRAIN].std(0)
    np.testing.assert_allclose(feat[:, :4], (x - mean) / std, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(feat[:, 4], 0, atol=1e-6)  # constant


def test_min_max_and_clip(dataset: Any, preprocess: Any, table: Any) -> None:
    x = columns(table).astype(np.float64)
    low, high = x[TRAIN].min(0), x[TRAIN].max(0)
    expected = (x - low) / np.where(high > low, high - low, 1)
    assert expected.max() > 1
    free = preprocess(dataset, transforms=[{"name": "min_max", "clip": False}])["feat"]
    np.testing.assert_allclose(free, expected, atol=1e-5)
    clipped = preprocess(dataset, transforms=["min_max"])["feat"]
    np.testing.assert_allclose(clipped, np.clip(expected, 0, 1), atol=1e-5)


def test_transforms_apply_in_order(dataset: Any, preprocess: Any, table: Any) -> None:
    graph = preprocess(dataset, transforms=["log1p", {"name": "standardize", "columns": ["a"]}])
    logs = np.log1p(columns(table).astype(np.float64))
    expected = (logs[:, 0] - logs[TRAIN, 0].mean()) / logs[TRAIN, 0].std()
    np.testing.assert_allclose(graph["feat"][:, 0], expected, atol=1e-4)
    np.testing.assert_allclose(graph["feat"][:, 1:], logs[:, 1:], rtol=1e-5)
    described = graph.manifest.report["transforms"]
    assert [d["transform"] for d in described] == ["log1p", "standardize"]
    assert described[1]["fitted"]["a"]["mean"] == pytest.approx([logs[TRAIN, 0].mean()], rel=1e-4)


def test_categories_unknown_to_training_share_a_code(make_dataset: Any, node_splits: Any, preprocess: Any) -> None:
    colour = np.array(["red", "blue", "red", "green", "mauve", "red"] * 3)  # training rows: red and green
    size = np.arange(18) % 6
    nodes = {"node": (18, {"colour": colour, "x": np.arange(18.0), "size": size})}
    dataset = make_dataset(nodes, {NODE: {"src": [0], "dst": [1]}}, node_splits(18), cardinalities={"size": (6,)})
    graph = preprocess(dataset)  # codes come by themselves where there are none
    assert graph.manifest.categories == (3, 6)
    expected = [{"green": 0, "red": 1}.get(c, 2) for c in colour.tolist()]
    assert graph["feat_cat"][:, 0].tolist() == expected
    assert graph["feat_cat"][:, 1].tolist() == size.tolist()
    assert graph.manifest.report["transforms"][0]["fitted"]["colour"]["first"] == ["green", "red"]
    graph = preprocess(dataset, transforms=[{"name": "one_hot", "columns": "colour"}])
    np.testing.assert_array_equal(graph["feat"][:, :3], np.eye(3)[expected])
    np.testing.assert_array_equal(graph["feat"][:, 3], np.arange(18))
    graph = preprocess(dataset, transforms=[{"name": "codes", "columns": "size"}])  # 1, 2, 4, 5 never train
    assert graph["feat_cat"][:6, 1].tolist() == [0, 2, 2, 1, 2, 2]
    with pytest.raises(RecipeError, match="max_categories"):
        preprocess(dataset, transforms=[{"name": "one_hot", "columns": "x", "max_categories": 3}])


@pytest.mark.parametrize("transforms", [[], [{"name": "one_hot", "columns": "size"}]])
def test_codes_that_a_column_has_not_are_refused(
    make_dataset: Any, node_splits: Any, preprocess: Any, transforms: list[dict[str, Any]]
) -> None:
    size = np.arange(18) % 6
    edges = {NODE: {"src": [0], "dst": [1]}}
    dataset = make_dataset({"node": (18, {"size": size})}, edges, node_splits(18), cardinalities={"size": (5,)})
    with pytest.raises(
        DataError, match=r"00000\.parquet \(row 5, column 'size'\): the code 5 is not in 0\.\.4; correct"
    ):
        preprocess(dataset, transforms=transforms)


def test_float16(dataset: Any, preprocess: Any, table: Any, make_dataset: Any, node_splits: Any) -> None:
    graph = preprocess(dataset, feature_dtype="float16")
    assert graph["feat"].dtype == np.float16
    np.testing.assert_array_equal(graph["feat"], columns(table).astype(np.float16))
    large = make_dataset(
        {"node": (N, {"a": np.full(N, 1e6)})}, {NODE: {"src": [0], "dst": [1]}}, node_splits(N), name="l"
    )
    with pytest.raises(DataError, match="float16"):
        preprocess(large, feature_dtype="float16")


@pytest.mark.parametrize(
    ("transforms", "said"),
    [
        ([], r"00001\.parquet \(row 2\): feature 'a' is nan in the data set itself; put"),
        (["normalize_rows"], r"row 2\): feature 'a' is nan in the data set itself before the transforms \(normalize_"),
        (
            ["standardize"],
            r"feature 'a' is nan or infinite in rows that standardize learns from, in the data set itself",
        ),
        (["log1p"], r"feature 'b' is finite in the data set and no longer so after log1p"),
    ],
)
def test_numbers_that_are_none_are_told_by_where_they_come_from(
    make_dataset: Any, node_splits: Any, preprocess: Any, monkeypatch: Any, transforms: list[str], said: str
) -> None:
    monkeypatch.setattr(Log1p, "apply", lambda self, x, state: np.full_like(x, np.inf))  # as a user's own might
    name, values = ("b" if transforms == ["log1p"] else "a"), np.arange(18.0)
    values[9] = 9 if name == "b" else np.nan
    dataset = make_dataset({"node": (18, {name: values})}, {NODE: {"src": [0], "dst": [1]}}, node_splits(18))
    with pytest.raises(DataError, match=said):
        preprocess(dataset, transforms=transforms)


def test_structure_features(dataset: Any, preprocess: Any, edges: Any) -> None:
    graph = preprocess(dataset, transforms=[{"name": "degree", "log": False}], symmetrize=False)
    np.testing.assert_array_equal(graph["feat"][:, 5], np.diff(graph["csc_indptr"]))
    np.testing.assert_array_equal(graph["feat"][:, 6], np.diff(graph["csr_indptr"]))
    graph = preprocess(dataset, transforms=["degree"])
    np.testing.assert_allclose(graph["feat"][:, 5], np.log1p(np.diff(graph["csc_indptr"])), rtol=1e-6)
    with pytest.raises(RecipeError, match="edge features"):
        preprocess(dataset, transforms=["edge_mean"])


def test_edge_mean(make_dataset: Any, node_splits: Any, preprocess: Any) -> None:
    edges = {"src": [0, 1, 3], "dst": [2, 2, 3], "w": np.array([[1.0, 2.0], [3.0, 6.0], [9.0, 9.0]], np.float32)}
    dataset = make_dataset({"node": (5, {})}, {NODE: edges}, node_splits(5), shard_rows=2)
    graph = preprocess(dataset, transforms=["edge_mean"], symmetrize=False, self_loops="keep")
    assert graph["feat"].tolist() == [[0, 0], [0, 0], [2, 4], [9, 9], [0, 0]]


def test_types_without_a_feature_have_zeros_or_a_code(make_dataset: Any, node_splits: Any, preprocess: Any) -> None:
    x = np.arange(12.0).reshape(6, 2)
    nodes = {"author": (4, {"age": np.array([30, 40, 50, 60])}), "paper": (6, {"x": x, "kind": np.arange(6) % 2})}
    dataset = make_dataset(
        nodes,
        {("author", "writes", "paper"): {"src": [0], "dst": [1]}},
        node_splits(6),
        cardinalities={"kind": (2,)},
        target_type="paper",
    )
    graph = preprocess(dataset, transforms=["standardize"])
    feat = graph["feat"]
    assert feat.shape == (10, 3)
    np.testing.assert_allclose(feat[:4, 0], (np.array([30, 40, 50, 60]) - 45) / np.std([30, 40, 50, 60]), rtol=1e-5)
    assert not feat[:4, 1:].any()
    assert not feat[4:, 0].any()
    np.testing.assert_allclose(feat[4:, 1:], (x - x[::3].mean(0)) / x[::3].std(0), rtol=1e-5)
    assert graph.manifest.categories == (3,)
    assert graph["feat_cat"][:, 0].tolist() == [2] * 4 + [0, 1] * 3
    nodes["author"][1]["x"] = np.zeros((4, 3))
    wrong = make_dataset(
        nodes,
        {("author", "writes", "paper"): {"src": [0], "dst": [1]}},
        node_splits(4),
        name="wrong",
        cardinalities={"kind": (2,)},
    )
    with pytest.raises(DataError, match="width 3 on author but numeric of width 2 on paper"):
        preprocess(wrong)


@pytest.mark.parametrize(
    ("transforms", "words"),
    [
        ([{"name": "standardize", "columns": "aa"}], "did you mean"),
        ([{"name": "codes", "columns": "a"}, {"name": "log1p", "columns": "a"}], "categorical at that point"),
        (["degree", "degree"], "by that name already"),
    ],
)
def test_mistakes_in_transforms(dataset: Any, preprocess: Any, transforms: Any, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        preprocess(dataset, transforms=transforms)


def test_a_changed_transform_recomputes_only_what_it_touches(dataset: Any, preprocess: Any, ears: Any) -> None:
    edges = len(dataset.manifest.tables["edges/node__to__node"].shards)
    shards, fitted = 9, sum(1 for first in range(0, N, 7) if any(first <= t < first + 7 for t in TRAIN))
    scale_b, scale_a = {"name": "standardize", "columns": "b"}, {"name": "min_max", "columns": "a"}
    codes, unclipped = {"name": "codes", "columns": "a"}, {**scale_a, "clip": False}
    ways: list[tuple[list[Any], dict[str, Any], dict[str, int]]] = [
        ([scale_b, scale_a], {}, {"edges": edges, "standardize": fitted, "min_max": fitted, "features": 2 * shards}),
        ([scale_b, scale_a], {}, {}),
        ([scale_b, unclipped], {}, {"min_max": fitted, "features": shards}),
        ([scale_b, scale_a, codes], {}, {"codes": fitted, "features": shards}),
        ([scale_b, scale_a], {"self_loops": "add"}, {}),  # other edges (keep no loops either), the same features
        ([scale_b, scale_a], {"self_loops": "keep"}, {"edges": edges}),
    ]
    for transforms, options, fresh in ways:
        ears.messages.clear()
        preprocess(dataset, ears=ears, transforms=transforms, **options)
        computed: Counter[str] = Counter()
        for text in ears.messages:  # such as "fit min_max: 7 of 7 shards computed, 0 reused"
            what, _, numbers = text.removeprefix("fit ").partition(": ")
            if "shards computed" in numbers:
                computed[what] += int(numbers.split()[0])
        assert +computed == fresh


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_rows_get_length_one(make_dataset: Any, node_splits: Any, preprocess: Any, norm: str) -> None:
    words = np.array([[1, 1, 0], [0, -4, 0], [0, 0, 0], [1, 2, 3], [1e6, 1, 1]], np.float32)
    nodes = {"node": (5, {"words": words, "other": np.full((5, 1), 7, np.float32)})}
    dataset = make_dataset(nodes, {NODE: {"src": [0], "dst": [1]}}, node_splits(5))
    feat = preprocess(dataset, transforms=[{"name": "normalize_rows", "norm": norm}])["feat"]
    lengths = np.linalg.norm(feat[:, :3], ord=1 if norm == "l1" else 2, axis=1)
    np.testing.assert_allclose(lengths, [1, 1, 0, 1, 1], rtol=1e-6)
    np.testing.assert_array_equal(np.sign(feat[:, :3]), np.sign(words))
    np.testing.assert_array_equal(feat[:, 3], 1)  # another column's numbers do not count


def test_workers_change_no_byte(make_dataset: Any, node_splits: Any, preprocess: Any) -> None:
    """How many there are stays out of the key; to other processes jobs travel as pickles, and no array comes back."""
    rng, answers = np.random.default_rng(0), []
    src, dst = rng.integers(0, N, (2, 900))
    ends = {"src": src, "dst": dst, "weight": rng.random(900).astype(np.float32)}
    nodes = {"node": (N, {"x": rng.standard_normal((N, 3)).astype(np.float32) * 100, "label": rng.integers(0, 2, N)})}
    data = make_dataset(nodes, {NODE: ends}, node_splits(N))

    def backwards(function: Any, items: Any) -> Any:
        with ThreadPoolExecutor(3) as pool:
            function, jobs = pickle.loads(pickle.dumps((function, list(items)[::-1])))
            done = list(pool.map(function, jobs))[::-1]
        answers.extend(done)
        return done

    transforms = ["standardize", "min_max", "degree", "hops"]
    ways: list[dict[str, Any]] = [{"workers": 3, "map_shards": backwards}, {"workers": 1}, {"workers": 5}]
    one, *others = [preprocess(data, transforms=transforms, **options).manifest.files for options in ways]
    assert others == [one, one]
    assert set(answers) == {True}


def test_every_transform_has_options_and_a_first_line() -> None:
    names = TRANSFORMS.names()
    assert {"standardize", "min_max", "log1p", "one_hot", "codes", "degree"} <= set(names)
    for name in names:
        TRANSFORMS.create(TRANSFORMS.config(name))
        assert len(TRANSFORMS.summary(name)) > 20
