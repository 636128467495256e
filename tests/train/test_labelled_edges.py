"""Edge tasks: labels of edges, what carries messages, batches, scores of both paths, controls, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from configs.errors import DataError, RecipeError
from configs.load import build_recipe
from configs.registry import MODELS
from configs.schema import Recipe
from models.block import Batch
from models.facts import GraphFacts
from models.layers.output_heads import EdgeHead
from tasks.components.stage import STAGE as COMPONENTS
from tasks.controls.suite import fitted_controls
from tasks.evaluators.metrics import rocauc
from tasks.inference.opened import Opened
from tasks.inference.predictor import Predictor
from tasks.ingest.stage import STAGE as INGEST
from tasks.kinds.judged import Deciding
from tasks.kinds.of import kind_of, predict
from tasks.partition.stage import STAGE as PARTITION
from tasks.preprocess.stage import STAGE as PREPROCESS
from tasks.publish.champion.trained import HASHES, row_hashes, row_names, trained_on, write_trained
from tasks.sampling.rows.features import FeatureSource
from tasks.stage import run_stage
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.ids import IdMap
from tasks.storage.manifests import SPLITS
from tasks.train.families import check_options
from tasks.train.job import BEST
from tasks.train.state.checkpoint import load_model
from tests.loaders import make_loader
from tests.train.in_process import make_engine, make_job, own_settings, run_engine

NODES, EDGES = 97, 613


def save(rng: np.random.Generator, nodes: int = NODES, edges: int = EDGES) -> dict[str, np.ndarray]:
    """Transfers with repetitions, reverses, loops, an island, unknown ends and empty labels."""
    ends = rng.integers(0, nodes - 2, (edges, 2))
    ends[1], ends[2], ends[3] = ends[0], ends[0][::-1], (5, 5)
    ends[4] = nodes - 2, nodes - 1  # joined to each other alone
    names = np.array([f"n{i}" for i in range(nodes)])
    label = rng.choice(np.array(["fraud", "fine", ""]), edges, p=[0.3, 0.5, 0.2])
    label[[0, 4]] = "fraud", "fine"
    table = {
        "id": np.array([f"t{i}" for i in range(edges)]),
        "from": names[ends[:, 0]],
        "to": names[ends[:, 1]],
        "kind": rng.choice(np.array(["card", "cash", "wire"]), edges),
        "amount": rng.lognormal(3, 2, edges).astype(np.float32),
        "when": rng.permutation(edges),
        "label": label,
    }
    table["to"][7] = "nobody"
    x = rng.standard_normal((nodes, 3)).astype(np.float32)
    pq.write_table(pa.table({"id": names, **{f"x{i}": x[:, i] for i in range(3)}}), "nodes.parquet")
    labels = pa.array([one or None for one in label.tolist()])
    pq.write_table(pa.table(table | {"label": labels}), "transfers.parquet")
    return {**table, "x": x}


def recipe_of(dataset: dict[str, Any] | None = None, edges: dict[str, Any] | None = None, **sections: Any) -> Recipe:
    own = {"files": "transfers.parquet", "source": "from", "target": "to", "label": "label", "id": "id"}
    own |= {"features": ["amount"], "categorical": ["kind"], "time": "when", "on_unknown_id": "drop"}
    tables = {
        "name": "tables",
        "task": "edge",
        "directed": True,
        "nodes": {"files": "nodes.parquet", "features": ["x0", "x1", "x2"]},
        "edges": own | (edges or {}),
    }
    usual = {
        "name": "transfers",
        "model": {"name": "graphsage", "hidden_dim": 8, "num_layers": 2, "dropout": 0.0},
        "train": {"epochs": 2, "threads": 1, "device": "cpu"},
        "preprocess": {"workers": 1},
    }
    return build_recipe({**usual, "dataset": tables | (dataset or {}), **sections})


def prepared(recipe: Recipe, home: Home) -> tuple[Any, DatasetStore, GraphStore]:
    """Return the partition's artifact, the data set, and the graph."""
    done = run_stage(INGEST, recipe, {}, home)
    dataset = DatasetStore(done.folder, done.manifest)
    for stage in (PREPROCESS, COMPONENTS, PARTITION):
        done = run_stage(stage, recipe, {stage.parents[0]: done.parent}, home)
    return done.parent, dataset, GraphStore.open(done.parent.folder)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.chdir(tmp_path)
    return Home.open(tmp_path / "home")


def messages(store: GraphStore, ids: IdMap) -> set[tuple[str, str]]:
    indptr, indices = store["csc_indptr"], np.asarray(store["csc_indices"])
    target = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return set(zip(ids.lookup(indices).to_pylist(), ids.lookup(target).to_pylist(), strict=True))


@pytest.mark.parametrize("scored", ["left_out", "keep"])
@pytest.mark.parametrize(("keep", "parts"), [("all", 1), ("largest", 1), ("largest", 3)])
def test_rows_and_messages_are_those_of_the_tables(home: Home, scored: str, keep: str, parts: int) -> None:
    table = save(np.random.default_rng(parts))
    sections = {"components": {"keep": keep}, "partition": {"num_parts": parts}}
    _, dataset, store = prepared(recipe_of({"scored_edges": scored}, **sections), home)
    ids = IdMap(store, dataset)
    every = np.arange(len(store["edge_ends"]))
    columns = {name: np.array(values.to_pylist()) for name, values in ids.edge_columns(every).items()}
    rows = columns["row"]
    expected = np.setdiff1d(np.arange(EDGES), [7, *([] if keep == "all" else [4])])
    if scored == "keep":  # else further nodes may have lost all their edges
        assert rows.tolist() == expected.tolist()
    for name, column in (("edge_id", "id"), ("source", "from"), ("target", "to")):
        assert columns[name].tolist() == table[column][rows].tolist()
    names = [*dataset.column("classes", "name"), ""]
    assert [names[code] for code in store["edge_label"]] == table["label"][rows].tolist()
    assert np.array_equal(store["scored_feat"][:, 0], table["amount"][rows])
    kinds = dataset.column("edge_categories/kind", "name")
    assert kinds[np.asarray(store["scored_feat_cat"])[:, 0]].tolist() == table["kind"][rows].tolist()

    splits = {split: np.asarray(store[f"{split}_idx"]) for split in SPLITS}
    dealt = np.concatenate([*splits.values()])
    assert len(np.unique(dealt)) == len(dealt)
    assert sorted(rows[dealt]) == [row for row in rows if table["label"][row]]
    held = np.concatenate([splits["valid"], splits["test"]]) if scored == "left_out" else []
    ends = np.delete(np.stack([columns["source"], columns["target"]], 1), held, 0).tolist()
    pairs = {(s, t) for s, t in ends if s != t}  # loops are dropped, as usual
    assert messages(store, ids) == pairs | {(t, s) for s, t in pairs}


def test_the_newest_edges_are_tested_and_are_in_no_earlier_graph(home: Home) -> None:
    table = save(np.random.default_rng(0))
    _, dataset, store = prepared(recipe_of({"split": {"by": "time"}}), home)
    ids = IdMap(store, dataset)
    when = {name: table["when"][np.array(ids.edge_columns(store[f"{name}_idx"])["row"])] for name in SPLITS}
    assert when["train"].max() < when["valid"].min()
    assert when["valid"].max() < when["test"].min()
    tested = ids.edge_columns(store["test_idx"])
    tested = set(np.array(tested["row"]).tolist())
    older = [row for row in range(EDGES) if row not in tested and row != 7]  # unlabelled ones too
    held = set(np.array(ids.edge_columns(store["valid_idx"])["row"]).tolist())
    ends = {(table["from"][row], table["to"][row]) for row in older if row not in held}
    expected = {(s, t) for s, t in ends if s != t}
    assert messages(store, ids) == expected | {(t, s) for s, t in expected}


def open_model(store: GraphStore, **options: Any) -> Any:
    torch.manual_seed(1)
    config = {"name": "graphsage", "hidden_dim": 8, "num_layers": 2, "dropout": 0.0, **options}
    return MODELS.create(MODELS.config(config), graph_facts(store.manifest))


@pytest.mark.parametrize("scored", ["left_out", "keep"])
def test_a_batch_is_sampled_without_its_own_edges(home: Home, scored: str) -> None:
    save(np.random.default_rng(3))
    _, _, store = prepared(recipe_of({"scored_edges": scored}), home)
    model = open_model(store, num_layers=1)
    features = FeatureSource.of(store, model)
    loader = make_loader("labelled_edge", store, features, model, fanout=(-1,), batch_size=37)
    positions = np.arange(5, 42)
    batch = loader.batch(positions, 11)
    edges = np.asarray(store["train_idx"][positions])
    ends = np.asarray(store["edge_ends"][edges])
    nodes = batch.inputs.node_ids.numpy()
    assert np.array_equal(nodes[batch.pairs.numpy().T], ends)
    assert np.array_equal(batch.own_feat.numpy(), store["scored_feat"][edges])
    assert np.array_equal(batch.own_feat_cat.numpy(), store["scored_feat_cat"][edges])
    assert np.array_equal(batch.target.numpy(), store["edge_label"][edges])
    [block] = batch.blocks
    own = {frozenset(pair) for pair in ends.tolist()} if scored == "left_out" else set()
    for place in range(block.num_dst):
        node = int(nodes[place])
        start, end = store["csc_indptr"][node : node + 2]
        expected = [int(u) for u in store["csc_indices"][start:end] if frozenset((int(u), node)) not in own]
        sampled = nodes[block.indices[block.indptr[place] : block.indptr[place + 1]].numpy()]
        assert sorted(sampled.tolist()) == sorted(expected)


@pytest.mark.parametrize("model", ["graphsage", "gat", "gatv2", "gcn", "gin", "deepgcn", "mlp", "sgc"])
@pytest.mark.parametrize("directed", [True, False])
def test_inference_scores_as_a_batch_with_all_neighbours(home: Home, model: str, directed: bool) -> None:
    save(np.random.default_rng(4))
    _, _, store = prepared(recipe_of({"scored_edges": "keep", "directed": directed}), home)
    network = open_model(store, name=model).eval()
    features = FeatureSource.of(store, network)
    loader = make_loader("labelled_edge", store, features, network, fanout=(-1, -1))
    with torch.no_grad():
        expected = network(loader.batch(np.arange(50), 0)).numpy()
    scores = Predictor(store, batch_size=17).edge_scores(network, np.asarray(store["train_idx"][:50], np.int64))
    assert np.allclose(scores, expected, atol=1e-4)
    swapped = GraphStore.open(store.folder)
    swapped.replace("edge_ends", np.asarray(store["edge_ends"])[:, ::-1])
    turned = Predictor(swapped).edge_scores(network, np.asarray(store["train_idx"][:50], np.int64))
    assert np.allclose(scores, turned, atol=1e-4) != directed


def test_the_head_against_plain_sums() -> None:
    rng = np.random.default_rng(0)
    facts = GraphFacts("edge", 3, 10, edge_feature_dim=2, edge_categories=(4, 5))
    head = EdgeHead(7, 6, facts, 2, 0.0)
    x = torch.tensor(rng.standard_normal((9, 7)), dtype=torch.float32)
    numbers = torch.tensor(rng.lognormal(2, 3, (13, 2)) * [1, -1], dtype=torch.float32)
    codes = torch.tensor(rng.integers(0, 4, (13, 2)))
    pairs = torch.tensor(rng.integers(0, 9, (2, 13)))
    batch = Batch([], None, torch.empty(0), 13, pairs=pairs, own_feat=numbers, own_feat_cat=codes)  # type: ignore[arg-type]
    logs = np.sign(numbers.numpy()) * np.log1p(np.abs(numbers.numpy()))
    table = head.categories.table.detach().numpy()  # type: ignore[union-attr]
    wide = np.concatenate(
        [
            x.numpy()[pairs[0]],
            x.numpy()[pairs[1]],
            (logs - logs.mean(0)) / logs.std(0),
            table[codes[:, 0]] + table[4 + codes[:, 1]],
        ],
        axis=1,
    )
    first, last = (head.mlp[place] for place in (0, -1))
    hidden = np.maximum(wide @ first.weight.detach().numpy().T + first.bias.detach().numpy(), 0)
    expected = hidden @ last.weight.detach().numpy().T + last.bias.detach().numpy()
    assert np.allclose(head(x, batch).detach().numpy(), expected, atol=1e-4)


def trained(recipe: Recipe, graph: Any, work: Path) -> Any:
    with own_settings():
        job = make_job(recipe, graph, work)
        run_engine(make_engine(job))
    return load_model(job.work / BEST)


def save_hidden_groups(rng: np.random.Generator, nodes: int = 500, edges: int = 6000) -> None:
    """Accounts of two groups that only all their neighbours together give away; some transfers have a label.

    `between`: of groups; `large`: by the edge's own amount.
    """
    group = rng.integers(0, 2, nodes)
    x = (group[:, None] - 0.5) * 0.7 + rng.standard_normal((nodes, 4))
    src, dst = rng.integers(0, nodes, (2, 4 * edges))
    kept = np.flatnonzero((group[src] == group[dst]) | (rng.random(4 * edges) < 0.25))[:edges]
    src, dst = src[kept], dst[kept]
    amount = rng.lognormal(3, 1, len(src))
    between = pa.array((group[src] != group[dst]).astype(np.int64), mask=rng.random(len(src)) < 0.5)
    large = (np.log(amount) > 3).astype(np.int64)
    pq.write_table(pa.table({"id": np.arange(nodes), **{f"x{i}": x[:, i] for i in range(4)}}), "nodes.parquet")
    columns = {"from": src, "to": dst, "amount": amount, "between": between, "large": large}
    pq.write_table(pa.table(columns), "transfers.parquet")


@pytest.mark.parametrize("label", ["between", "large"])
def test_the_model_reads_neighbours_of_both_ends_and_the_edge(home: Home, tmp_path: Path, label: str) -> None:
    save_hidden_groups(np.random.default_rng(0))
    features = ["amount"] if label == "large" else []
    edges = {"label": label, "features": features, "categorical": [], "id": None, "time": None}
    dataset = {"task_type": "binary", "nodes": {"files": "nodes.parquet", "features": ["x0", "x1", "x2", "x3"]}}
    training = {"epochs": 12, "threads": 1, "device": "cpu", "learning_rate": 0.02}
    training["loader"] = {"name": "labelled_edge", "batch_size": 128}
    recipe = recipe_of(
        dataset, edges, train=training, model={"name": "graphsage", "hidden_dim": 32, "num_layers": 2, "dropout": 0.0}
    )
    graph, data, store = prepared(recipe, home)
    model, predictor = trained(recipe, graph, tmp_path / "work"), Predictor(store)
    found = predict(predictor, model, "test")
    assert found.label is not None
    mine = rocauc(found.label[:, 0], found.scores[:, 0])  # type: ignore[index]
    opened = Opened(store, data, IdMap(store, data), None, model, predictor)
    with fitted_controls(kind_of(store.manifest), opened, tmp_path) as controls:
        others = {
            name: rocauc(control.label[:, 0], control.scores[:, 0])  # type: ignore[index]
            for name, control in controls.predictions("test", found)
        }
    assert set(others) == {"majority", "features", "both_ends"}
    if label == "between":
        assert mine > max(others.values()) + 0.1, (mine, others)
    else:
        assert min(mine, others["both_ends"]) > 0.97, (mine, others)


def test_trees_see_both_ends_and_the_edge_and_categories_as_such(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasks.controls import boosting

    table, seen, fit = save(np.random.default_rng(4)), list[Any](), boosting.fit_columns

    def remembered(*given: Any) -> Any:
        seen.append(given)
        return fit(*given)

    monkeypatch.setattr(boosting, "fit_columns", remembered)
    recipe = recipe_of()
    graph, data, store = prepared(recipe, home)
    ids = IdMap(store, data)
    opened = Opened(store, data, ids, None, trained(recipe, graph, tmp_path / "work"), Predictor(store))
    with fitted_controls(kind_of(store.manifest), opened, tmp_path):
        pass
    (train, _, categories, _), row = seen[0], np.array(ids.edge_columns(np.asarray(store["train_idx"]))["row"])
    ends = [np.array([int(name[1:]) for name in table[end][row]]) for end in ("from", "to")]
    assert categories == [train.x.shape[1] - 1]
    np.testing.assert_allclose(train.x[:, :6], np.concatenate([table["x"][end] for end in ends], 1), rtol=1e-6)
    assert len({*zip(table["kind"][row].tolist(), train.x[:, -1].tolist(), strict=True)}) == 3


@pytest.mark.parametrize("task_type", ["regression", "multilabel", "binary"])
def test_labels_of_other_types(home: Home, tmp_path: Path, task_type: str) -> None:
    rng = np.random.default_rng(2)
    save(rng)
    table = pq.read_table("transfers.parquet")
    values = rng.standard_normal((EDGES, 2)) if task_type == "regression" else rng.integers(0, 2, (EDGES, 2))
    for place in (0, 1):
        table = table.append_column(f"y{place}", pa.array(values[:, place], mask=rng.random(EDGES) < 0.1))
    pq.write_table(table, "transfers.parquet")
    columns = ["y0"] if task_type == "binary" else ["y0", "y1"]
    recipe = recipe_of({"task_type": task_type}, {"label": columns})
    graph, data, store = prepared(recipe, home)
    model, predictor = trained(recipe, graph, tmp_path / "work"), Predictor(store)
    kind, opened = kind_of(store.manifest), Opened(store, data, IdMap(store, data), None, model, predictor)
    rows = kind.rows(predictor, "test")
    prediction = kind.score(predictor, model, rows)
    written = pa.concat_tables(
        [pa.table(part) for part in kind.columns(opened, rows, prediction, Deciding())], promote_options="default"
    )
    assert written.num_rows == store.manifest.splits["test"]
    given = np.array(written["label"].to_pylist(), float).reshape(written.num_rows, -1)
    place = written["row"].to_numpy()
    there = ~np.isnan(given)
    assert np.allclose(given[there], values[place][:, : len(columns)][there], atol=1e-6)
    rest = kind.rest(opened, lambda _: None)
    assert rest is None or not np.isin(rest.items, rows.items).any()


def test_classes_in_balance_are_learnt(home: Home, tmp_path: Path) -> None:
    save(np.random.default_rng(6))
    loss = {"name": "focal", "class_weight": {"fraud": 3}}
    loader = {"name": "auto", "balance": "classes", "batch_size": 64}
    train = {"epochs": 2, "threads": 1, "device": "cpu", "loader": loader}
    graph, _, store = prepared(recipe_of(train=train), home)
    found = predict(Predictor(store), trained(recipe_of(train=train), graph, tmp_path / "balanced"), "test")
    weighted = recipe_of(train=train | {"loader": "auto", "loss": loss})
    again = predict(Predictor(store), trained(weighted, graph, tmp_path / "weighted"), "test")
    assert found.scores is not None
    assert again.scores is not None
    assert found.scores.shape == again.scores.shape == (store.manifest.splits["test"], 2)
    assert not np.allclose(found.scores, again.scores)


def test_edges_of_files_split_by_a_column(home: Home) -> None:
    save(np.random.default_rng(5))
    table = pq.read_table("transfers.parquet")
    labelled = np.flatnonzero(table["label"].is_valid().to_numpy(zero_copy_only=False))
    split = np.full(EDGES, None, object)
    for place, name in enumerate(("train", "val", "test")):
        split[labelled[place::4]] = name
    pq.write_table(table.append_column("part", pa.array(split)), "transfers.parquet")
    _, dataset, store = prepared(recipe_of({"split": {"by": "column", "column": "part"}}), home)
    rows = np.array(IdMap(store, dataset).edge_columns(store["valid_idx"])["row"])
    assert rows.tolist() == [row for row in labelled[1::4].tolist() if row != 7]
    split[np.flatnonzero(table["label"].is_null().to_numpy(zero_copy_only=False))[0]] = "test"
    pq.write_table(table.append_column("part", pa.array(split)), "transfers.parquet")
    with pytest.raises(DataError, match=r"1 of .* edges of the test split have no label, such as edge 'row "):
        prepared(recipe_of({"split": {"by": "column", "column": "part"}}), home)


@pytest.mark.parametrize(
    ("dataset", "edges", "words"),
    [
        ({}, {"features": ["label"]}, "column 'label' is named as label and as a feature"),
        ({}, {"label": []}, "an edge task needs one place of labels"),
        ({"task": "node"}, {}, "edges.label is for edge tasks"),
        ({}, {"relation_column": "kind", "categorical": []}, "edges that have labels are of one relation"),
        ({"split": {"by": "files", "files": {"valid": "v", "test": "t"}}}, {}, "edges are no rows of files"),
        ({"task": "link", "scored_edges": "keep"}, {"label": [], "id": None}, "scored_edges is for edge tasks"),
        ({"task_type": "regression", "split": {"by": "stratified"}}, {}, "no classes to stratify by"),
        ({"split": {"negatives": ["random"], "by": "time", "known_pairs": "keep"}}, {}, "are for link tasks"),
    ],
)
def test_refused_options(dataset: dict[str, Any], edges: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        recipe_of(dataset, edges)


@pytest.mark.parametrize(
    ("edges", "words"),
    [({}, "ids of edges"), ({"id": None}, "ids of ends, and times"), ({"id": None, "time": None}, "ids")],
)
def test_trained_edges_are_told_from_others_between_the_same_ends(
    home: Home, tmp_path: Path, edges: dict[str, Any], words: str
) -> None:
    save(np.random.default_rng(3), nodes=20)
    recipe = recipe_of(edges=edges)
    (graph, _, _), ingest = prepared(recipe, home), run_stage(INGEST, recipe, {}, home).parent
    assert row_names(graph, ingest) == words
    write_trained(tmp_path, graph, ingest)
    trained = trained_on(tmp_path, graph, ingest)
    assert trained is not None
    assert trained.any() == (words == "ids")
    assert np.isin(row_hashes(graph, ingest, "train"), np.load(tmp_path / HASHES)).all()


def test_snapshots_are_refused(home: Home) -> None:
    save(np.random.default_rng(0))
    with pytest.raises(RecipeError, match="edge tasks have no snapshots; split by time"):
        prepared(recipe_of(snapshot={"as_of": "300"}), home)


@pytest.mark.parametrize("strategy", ["partitioned", "partition_parallel"])
def test_other_strategies_are_refused_early(strategy: str) -> None:
    train = {"epochs": 1, "num_ranks": 2, "strategy": strategy}
    recipe = recipe_of(train=train, partition={"num_parts": 2})
    with pytest.raises(RecipeError, match=f"{strategy}.*labelled_edge|labelled_edge.*{strategy}"):
        check_options(recipe)


def test_too_few_labels_and_repeated_words(home: Home) -> None:
    save(np.random.default_rng(0))
    table = pq.read_table("transfers.parquet")
    only = pa.array(["fraud"] * 4 + [None] * (EDGES - 4))
    pq.write_table(table.set_column(table.schema.get_field_index("label"), "label", only), "transfers.parquet")
    with pytest.raises(DataError, match="has 1 class \\(fraud\\)"):
        prepared(recipe_of(), home)
