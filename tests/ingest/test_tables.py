"""Users' tables of all formats, against plain references."""

from __future__ import annotations

import gzip
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
import zstandard

from configs.errors import RecipeError
from configs.load import build_recipe
from configs.registry import DATASETS
from tasks.ingest.stage import STAGE
from tasks.stage import Listener, run_stage
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.file_names import file_name
from tasks.storage.home import Home
from tests.ingest.conftest import Ingest
from tests.ingest.small_tables import section

NAMES = [f"n{i * 7 % 1000:03d}" for i in range(60)]


def write_text(path: Path, text: str) -> None:
    data = text.encode()
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".zst":
        data = zstandard.compress(data)
    path.write_bytes(data)


def nodes_table(num: int = 60) -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "id": NAMES[:num],
            "x": rng.standard_normal(num),
            "vec": pa.array(rng.standard_normal((num, 3)).tolist()),
            "kind": [("red", "green", None)[i % 3] for i in range(num)],
            "label": [("cat", "dog", "bird", None)[i % 4] for i in range(num)],
            "when": pa.array(np.arange(num) * 86400, pa.timestamp("s")),
            "part": ["train" if i < 40 else "val" if i < 48 else "test" for i in range(num)],
        }
    )


def edges_arrays(num: int = 60, count: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.integers(0, num, count), rng.integers(0, num, count)


def write_named_edges(path: Path) -> tuple[np.ndarray, np.ndarray]:
    src, dst = edges_arrays()
    rows = (f"{NAMES[a]},{NAMES[b]},{i / 2}\n" for i, (a, b) in enumerate(zip(src, dst, strict=True)))
    write_text(path, "src,dst,w\n" + "".join(rows))
    return src, dst


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "csv.zst", "tsv", "parquet"])
def test_text_ids_features_labels(ingest: Ingest, folder: Path, ending: str) -> None:
    table = nodes_table()
    if ending == "parquet":
        pq.write_table(table, folder / "nodes.parquet")
    else:
        flat = table.drop_columns(["vec"])
        sink = pa.BufferOutputStream()
        pc.write_csv(flat, sink, pc.WriteOptions(delimiter="\t" if ending == "tsv" else ","))
        write_text(folder / f"nodes.{ending}", sink.getvalue().to_pybytes().decode())
    src, dst = write_named_edges(folder / "edges.csv.gz")
    features = ("x", "vec") if ending == "parquet" else ("x",)
    nodes = {"files": f"nodes.{ending}", "features": features, "categorical": "kind", "label": "label", "time": "when"}
    store = ingest(**section(nodes=nodes, edges={"files": "edges.csv.gz", "weight": "w"}, split={"by": "stratified"}))
    manifest = store.manifest
    assert (manifest.num_nodes, manifest.num_edges, manifest.num_classes) == (60, 300, 3)
    np.testing.assert_array_equal(store.column("edges/node__to__node", "src"), src)
    np.testing.assert_array_equal(store.column("edges/node__to__node", "dst"), dst)
    np.testing.assert_array_equal(store.column("edges/node__to__node", "weight"), np.arange(300) / 2)
    np.testing.assert_allclose(store.column("nodes/node", "x"), np.array(table["x"], np.float32))
    if ending == "parquet":
        np.testing.assert_allclose(store.column("nodes/node", "vec"), np.array(table["vec"].to_pylist(), np.float32))
    assert store.read("ids/node").column("original_id").to_pylist() == NAMES
    assert store.read("classes").column("name").to_pylist() == ["bird", "cat", "dog"]
    labels = store.column("nodes/node", "label")
    assert labels.tolist() == [{"cat": 1, "dog": 2, "bird": 0, None: -1}[x] for x in table["label"].to_pylist()]
    names = store.read("categories/node/kind").column("name").to_pylist()
    assert [names[code] for code in store.column("nodes/node", "kind")] == [x or "" for x in table["kind"].to_pylist()]
    np.testing.assert_array_equal(store.column("nodes/node", "time"), np.arange(60) * 86400)
    splits = {name: store.column(f"split/{name}", "node_id") for name in ("train", "valid", "test")}
    dealt = np.concatenate(list(splits.values()))
    assert len(np.unique(dealt)) == len(dealt) == (labels >= 0).sum()
    for name, share in (("train", 9), ("valid", 3), ("test", 3)):
        assert (np.bincount(labels[splits[name]], minlength=3) == share).all(), name


def test_columns_that_are_not_read_are_said(home: Home, folder: Path) -> None:
    said: list[str] = []

    class Said(Listener):
        def message(self, stage: str, text: str) -> None:
            said.append(text)

    head = "id,y," + ",".join(f"c{i}" for i in range(32))
    write_text(folder / "n.csv", head + "".join(f"\n{i},{i % 2}" + ",5" * 32 for i in range(10)))
    write_text(folder / "e.csv", "src,dst\n1,1\n")
    one: Any = SimpleNamespace(dataset=DATASETS.config(section()), version_moment=None)
    run_stage(STAGE, one, {}, home, listener=Said())
    thirty = ", ".join(f"c{i}" for i in range(30))
    ways = "dataset.nodes.time, dataset.nodes.features, dataset.nodes.categorical, dataset.nodes.texts"
    assert said == [f"n.csv: not read: {thirty} and 2 more; to use one, name it by {ways}"]


def test_columns_that_a_file_of_edges_has_besides(home: Home, folder: Path) -> None:
    """They may be named by name and by place."""
    rows = [f"{i},{(i + 1) % 40},{i + 1},{2000 + i},b" for i in range(40)]
    for head, names in (("src,dst,weight,time,kind", ("weight", "time")), (None, ("2", "3"))):
        write_text(folder / "e.csv", "\n".join([head, *rows] if head else rows) + "\n")
        split = [f"dataset.split.{name}={share}" for name, share in (("train", 0.4), ("valid", 0.3), ("test", 0.3))]
        base = {"name": "x", "model": "skipgram", "dataset": "synthetic"}
        ways = [f"dataset.edges.{role}={name}" for role, name in zip(("weight", "time"), names, strict=True)]
        for columns in (ways, ["dataset.edges.weight=2", "dataset.edges.time=3"]):
            recipe = build_recipe(dict(base), ["dataset=e.csv", *split, *columns])
            outcome = run_stage(STAGE, recipe, {}, home)
            edges = DatasetStore(outcome.folder, outcome.manifest).read("edges/node__to__node").to_pydict()
            assert edges["weight"] == [time - 1999 for time in edges["time"]]
            assert edges["weight"] == [src + 1 for src in edges["src"]]


def test_sparse_numbers_in_edge_lists_only(ingest: Ingest, folder: Path) -> None:
    """Ids are found in the edges, over several files, and sorted."""
    rng = np.random.default_rng(2)
    known = np.sort(rng.choice(10**12, 50, replace=False))
    pairs = known[rng.integers(0, 50, (200, 2))]
    for k in range(2):
        lines = "".join(f"{a}\t{b}\n" for a, b in pairs[k * 100 : k * 100 + 100])
        write_text(folder / f"part-{k}.txt.gz", "# from\tto\n" + lines)
    edges = {"files": "part-*.txt.gz", "source": "0", "target": "1"}
    store = ingest(name="tables", task="link", edges=edges, num_negatives=50)
    used = np.unique(pairs)
    assert store.read("ids/node").column("original_id").to_pylist() == used.tolist()
    parts = [store.read(f"split/{name}") for name in ("train", "valid", "test")]
    got = np.concatenate([np.stack([used[np.asarray(p["src"])], used[np.asarray(p["dst"])]], 1) for p in parts])
    assert sorted(map(tuple, got.tolist())) == sorted(map(tuple, pairs.tolist()))
    assert store.manifest.splits["train"] == store.manifest.num_edges == parts[0].num_rows
    # A pair and its reverse are never in two splits.
    keys = [{tuple(sorted(p)) for p in zip(t["src"].to_pylist(), t["dst"].to_pylist(), strict=True)} for t in parts]
    assert not keys[0] & keys[1]
    assert not keys[0] & keys[2]
    assert not keys[1] & keys[2]
    negative = store.read("split/test_negative")
    assert negative.num_rows == 50
    assert not (np.asarray(negative["src"]) == np.asarray(negative["dst"])).any()


def test_dense_numbers_need_no_map(ingest: Ingest, folder: Path) -> None:
    src, dst = edges_arrays(20, 80)
    write_text(folder / "e.csv", "src,dst\n" + "".join(f"{a},{b}\n" for a, b in zip(src, dst, strict=True)))
    write_text(folder / "n.csv", "id,y\n" + "".join(f"{i},{i % 2}\n" for i in range(20)))
    np.save(folder / "x.npy", np.arange(60, dtype=np.float64).reshape(20, 3))
    store = ingest(**section(nodes={"files": "n.csv", "label": "y", "feature_file": "x.npy"}, task_type="binary"))
    assert "ids/node" not in store
    np.testing.assert_array_equal(store.column("nodes/node", "feat"), np.arange(60).reshape(20, 3))
    assert store.column("nodes/node", "label").tolist() == [[i % 2] for i in range(20)]
    loops = int((src == dst).sum())
    assert store.manifest.num_self_loops == loops
    assert store.manifest.num_duplicate_edges == 80 - len({*zip(src.tolist(), dst.tolist(), strict=True)})


def test_count_without_files_keeps_isolated_nodes(ingest: Ingest, folder: Path) -> None:
    write_text(folder / "e.csv", "src,dst\n0,1\n1,2\n2,3\n3,4\n4,5\n5,6\n0,6\n1,5\n0,3\n2,6\n1,6\n")
    write_text(folder / "s_valid.csv", "0,5\n")
    write_text(folder / "s_test.csv", "2,4\n3,9\n")
    split = {"by": "files", "files": {"valid": "s_valid.csv", "test": "s_test.csv"}}
    store = ingest(**section(task="link", nodes={"count": 10}, split=split, num_negatives=7))
    assert store.manifest.num_nodes == 10
    assert store.manifest.splits == {"train": 11, "valid": 1, "test": 2}
    assert store.read("split/test").to_pydict() == {"src": [2, 3], "dst": [4, 9]}


def test_split_by_column_files_and_time(ingest: Ingest, folder: Path) -> None:
    pq.write_table(nodes_table().set_column(4, "label", pa.array([i % 3 for i in range(60)])), folder / "nodes.parquet")
    write_named_edges(folder / "edges.csv")
    nodes = {"files": "nodes.parquet", "label": "label", "time": "when"}
    base: dict[str, Any] = {"name": "tables", "nodes": nodes, "edges": {"files": "edges.csv"}}
    by_column = ingest(**base, split={"by": "column", "column": "part"})
    assert by_column.column("split/valid", "node_id").tolist() == list(range(40, 48))
    for name, ids in (("train", NAMES[:9]), ("valid", NAMES[20:30]), ("test", NAMES[50:])):
        write_text(folder / f"{name}.csv", "\n".join(ids) + "\n")
    by_files = ingest(**base, split={"by": "files", "files": {n: f"{n}.csv" for n in ("train", "valid", "test")}})
    assert by_files.column("split/test", "node_id").tolist() == list(range(50, 60))
    by_time = ingest(**base, split={"by": "time", "train": 0.5, "valid": 0.25, "test": 0.25})
    assert by_time.column("split/train", "node_id").tolist() == list(range(30))
    assert by_time.column("split/test", "node_id").tolist() == list(range(45, 60))


def test_several_types_and_relations(ingest: Ingest, folder: Path) -> None:
    write_text(folder / "users.csv", "id,age\nu1,30\nu2,40\nu3,50\n")
    write_text(folder / "items.csv", "id,y\n10,a\n20,b\n30,a\n40,b\n50,a\n60,b\n")
    write_text(folder / "acts.csv", "who,what,how\nu1,10,buys\nu2,20,likes\nu3,60,buys\nu1,50,likes!\n")
    write_text(folder / "tags.csv", "item,tag\n10,x\n20,y\n20,x\n")
    users = {"type": "user", "files": "users.csv", "features": "age"}
    items = {"type": "item", "files": "items.csv", "label": "y"}
    acts = {"files": "acts.csv", "source": "who", "target": "what", "relation_column": "how"}
    tags = {"files": "tags.csv", "source": "item", "target": "tag", "relation": "has"}
    acts |= {"source_type": "user", "target_type": "item"}
    tags |= {"source_type": "item", "target_type": "tag"}
    store = ingest(**section(nodes=[users, items], edges=[acts, tags]))
    manifest = store.manifest
    assert manifest.target_type == "item"
    assert {t.name: t.num_nodes for t in manifest.node_types} == {"user": 3, "item": 6, "tag": 2}
    assert {t.name: t.num_edges for t in manifest.edge_types} == {
        "user__buys__item": 2,
        "user__likes__item": 1,
        f"user__{file_name('likes!')}__item": 1,
        "item__has__tag": 3,
    }
    assert store.read("edges/user__buys__item").to_pydict() == {"src": [0, 2], "dst": [0, 5]}
    assert store.read("edges/item__has__tag").to_pydict() == {"src": [0, 1, 1], "dst": [0, 1, 0]}


def test_labels_in_their_own_file(ingest: Ingest, folder: Path) -> None:
    write_text(folder / "e.csv", "src,dst\na,b\nb,c\nc,d\nd,e\n")
    write_text(folder / "l.tsv", "node\ty1\ty2\ne\t0\t1\na\t1\t\nb\t0\t0\nd\t1\t1\n")
    labels_of = {"files": "l.tsv", "id": "node", "label": "y1,y2"}
    split = {"train": 0.5, "valid": 0.25, "test": 0.25}
    store = ingest(**section(task_type="multilabel", nodes=(), labels=labels_of, split=split))
    ids = store.read("ids/node").column("original_id").to_pylist()
    labels = dict(zip(ids, store.column("nodes/node", "label").tolist(), strict=True))
    assert labels["e"] == [0, 1]
    assert labels["d"] == [1, 1]
    assert labels["a"][0] == 1
    assert np.isnan(labels["a"][1])
    assert np.isnan(labels["c"]).all()
    assert store.manifest.num_tasks == 2


def test_same_seed_same_split_and_new_files_new_key(ingest: Ingest, folder: Path) -> None:
    pq.write_table(nodes_table(), folder / "nodes.parquet")
    write_named_edges(folder / "edges.csv")
    nodes = {"files": "nodes.parquet", "label": "label"}
    base: dict[str, Any] = {"name": "tables", "nodes": nodes, "edges": {"files": "edges.csv"}}
    first = ingest(**base, split={"seed": 1})
    again = ingest(**base, split={"seed": 1, "by": "ratio"})
    other = ingest(**base, split={"seed": 2})
    assert first.folder == again.folder
    assert first.folder != other.folder
    assert first.column("split/train", "node_id").tolist() != other.column("split/train", "node_id").tolist()
    with (folder / "edges.csv").open("a") as file:
        file.write(f"{NAMES[0]},{NAMES[1]},1\n")
    assert ingest(**base, split={"seed": 1}).manifest.num_edges == 301


MISTAKES = [
    ({"edges": {"files": "e.csv", "sorce": "a"}}, "did you mean 'source'"),
    ({"task": "nodes"}, "task"),
    ({"task": "graph"}, r"which graph a node is in"),
    ({"split": {"by": "ratio", "train": 0.9}}, "add up to"),
    ({"split": {"by": "column"}}, "go together"),
    ({"task": "link"}, "no labels"),
    ({"task_type": "regression", "split": {"by": "stratified"}}, "stratify"),
    ({"nodes": [{"files": "n.csv", "label": "y"}, {"files": "n.csv"}]}, "twice"),
    ({"nodes": {"files": "n.csv"}}, "place of labels"),
]


@pytest.mark.parametrize(("change", "message"), MISTAKES)
def test_options_that_do_not_go_together(change: dict[str, Any], message: str) -> None:
    section = {"name": "tables", "nodes": {"files": "n.csv", "label": "y"}, "edges": {"files": "e.csv"}, **change}
    with pytest.raises(RecipeError, match=message):
        build_recipe({"name": "x", "dataset": section, "model": {"name": "graphsage"}})


def test_columns_without_names_may_be_written_as_numbers() -> None:
    """YAML takes `source: 0` for a number: the same recipe as with the number in quotes."""

    def build(kind: type[int] | type[str]) -> Any:
        nodes = {"files": "n.txt", "id": kind(0), "features": [kind(1), kind(2)], "label": kind(3), "time": kind(4)}
        edges = {"files": "e.txt", "source": kind(0), "target": kind(1), "weight": kind(2), "time": kind(3)}
        section = {"name": "tables", "nodes": nodes, "edges": edges}
        return build_recipe({"name": "x", "dataset": section, "model": {"name": "graphsage"}}).dataset

    assert build(int) == build(str)
    with pytest.raises(RecipeError, match="source: Input should be a valid string"):
        build(bool)  # type: ignore[arg-type]
