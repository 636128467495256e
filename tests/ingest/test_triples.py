"""Knowledge graphs of users: every form that they come in means the same triples."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.errors import DataError
from configs.registry import DATASETS
from tasks.ingest.stage import source
from tasks.storage.home import Home
from tasks.storage.home_files.source_digests import SourceDigests
from tests.ingest.conftest import Ingest
from tests.ingest.triple_files import SPLITS, TEST, TRAIN, VALID, Triple, lines, named, put, put_splits

FILES = {"name": "files", "files": {"valid": "valid.txt", "test": "test.txt"}}


def test_a_folder_as_fb15k_is_published(ingest: Ingest, folder: Path) -> None:
    put_splits(folder)
    store = ingest(name="triples", path=str(folder))
    manifest = store.manifest
    assert (manifest.task, manifest.task_type, manifest.metric) == ("triple", "triple", "mrr")
    assert (manifest.num_relations, manifest.directed, manifest.target_type) == (2, True, "entity")
    assert manifest.splits == {"train": 4, "valid": 1, "test": 2}
    assert manifest.warnings == ()
    assert named(store) == SPLITS
    # Ascending names have ascending numbers, however files are cut.
    assert store.read("ids/entity").to_pydict() == {"node_id": [0, 1, 2, 3], "original_id": ["ann", "bob", "cy", "dan"]}
    assert store.read("relations").to_pydict() == {"relation": [0, 1], "name": ["knows", "likes"]}
    assert store.read("edges/entity__to__entity").to_pydict() == {"src": [0, 1, 0, 3], "dst": [1, 2, 3, 2]}
    assert store.table("split/test").columns == {"src": "int32", "relation": "int32", "dst": "int32"}
    assert store.table("edges/entity__to__entity").columns == {"src": "int32", "dst": "int32"}
    assert store.table("nodes/entity").columns == {"node_id": "int64"}


@pytest.mark.parametrize("ending", [".txt", ".tsv", ".txt.gz", ".tsv.zst", ".csv", ".parquet", ".nt", ".nt.gz"])
@pytest.mark.parametrize("dev", [False, True])
def test_all_formats_of_a_folder(ingest: Ingest, folder: Path, ending: str, dev: bool) -> None:
    for split, rows in SPLITS.items():
        path = folder / f"{'dev' if dev and split == 'valid' else split}{ending}"
        if ending == ".parquet":
            columns = dict(zip(("h", "r", "t"), map(list, zip(*rows, strict=True)), strict=True))
            pq.write_table(pa.table(columns), path)
        elif ending.startswith(".nt"):
            put(path, "".join("{} .\n".format(" ".join(f"<{cell}>" for cell in row)) for row in rows))
        else:
            put(path, lines(rows, "," if ending == ".csv" else "\t", "s,p,o\n" if ending == ".csv" else ""))
    assert named(ingest(name="triples", path=str(folder))) == SPLITS


def test_numbers_and_lists_of_names(ingest: Ingest, folder: Path) -> None:
    """As the public benchmarks are kept: numbers of lines, and what these are called."""
    for split, rows in {"train": [(0, 1, 2), (2, 0, 1)], "valid": [(1, 0, 2)], "test": [(0, 0, 1)]}.items():
        columns = [pa.array(column, pa.int32()) for column in zip(*rows, strict=True)]
        pq.write_table(pa.table(columns, names=["h", "r", "t"]), folder / f"{split}.parquet")
    put(folder / "entities.txt.gz", "zoe\n00260881\nann\nnobody\n")
    put(folder / "relations.txt.gz", "likes\nknows\n")
    store = ingest(name="triples", path=str(folder))
    assert store.read("ids/entity")["original_id"].to_pylist() == ["zoe", "00260881", "ann", "nobody"]
    assert store.read("relations")["name"].to_pylist() == ["likes", "knows"]
    assert named(store)["train"] == [("zoe", "knows", "ann"), ("ann", "likes", "00260881")]
    put(folder / "entities.txt.gz", "0\n1\n")
    with pytest.raises(DataError, match=r"train\.parquet \(row 1, column h\): unknown entity 2: .*entities"):
        ingest(name="triples", path=str(folder))
    put(folder / "entities.txt.gz", "a\nb\n")
    with pytest.raises(DataError, match=r"\(row 1, column h\): entity 2 is not in .*: a number is a line there.* 0"):
        ingest(name="triples", path=str(folder))


def test_a_list_of_names_beside_names(ingest: Ingest, folder: Path) -> None:
    put_splits(folder)
    put(folder / "entities.txt", "dan\ncy\nbob\nann\neve\n")
    store = ingest(name="triples", path=str(folder))
    assert store.read("ids/entity")["original_id"].to_pylist() == ["dan", "cy", "bob", "ann", "eve"]
    assert named(store) == SPLITS
    put(folder / "entities.txt", "dan\ncy\nann\neve\n")
    with pytest.raises(DataError, match=r"unknown entity 'bob': it is not in .*entities\.txt; add it there") as error:
        ingest(name="triples", path=str(folder))
    assert "train.txt (row 0, column 2)" in str(error.value)
    assert "test.txt (row 0, column 0)" in str(error.value)


def test_ids_that_are_numbers(ingest: Ingest, folder: Path) -> None:
    put_splits(folder, train=[(0, 5, 1), (1, 5, 2), (2, 7, 0)], valid=[(0, 7, 1)], test=[(1, 7, 0)])
    store = ingest(name="triples", path=str(folder))
    assert "ids/entity" not in store  # 0, 1, 2 already
    assert store.read("relations")["name"].to_pylist() == ["5", "7"]
    put_splits(folder, train=[(0, 5, 10), (10, 5, 2), (2, 7, 0)], valid=[(0, 7, 10)], test=[(10, 7, 0)])
    store = ingest(name="triples", path=str(folder))
    assert store.read("ids/entity")["original_id"].to_pylist() == [0, 2, 10]
    store = ingest(name="triples", path=str(folder), text_ids=True)
    assert store.read("ids/entity")["original_id"].to_pylist() == ["0", "10", "2"]


def test_a_late_text_makes_texts_of_all(ingest: Ingest, folder: Path) -> None:
    """As in WN18: `007` is no number, and `7` before it was none either."""
    put_splits(folder, valid=[(8, 1, 8)], test=[("007", 1, 7)])
    (folder / "train.txt").unlink()
    pq.write_table(pa.table({"h": [7, 8], "r": [1, 1], "t": [8, 7]}), folder / "train.parquet")
    store = ingest(name="triples", path=str(folder))
    assert store.read("ids/entity")["original_id"].to_pylist() == ["007", "7", "8"]
    assert store.manifest.num_relations == 1


def test_columns_by_name_and_place(ingest: Ingest, folder: Path) -> None:
    put_splits(folder)
    turned = [(tail, 1.5, head, relation) for head, relation, tail in TRAIN]
    put(folder / "t.csv", lines(turned, ",", "tail,weight,head,relation\n"))
    by_usual_names = named(ingest(name="triples", triples="t.csv", split=FILES))
    assert by_usual_names["train"] == TRAIN
    by_name = {"head": "a", "relation": "b", "tail": "c"}
    put(folder / "t.tsv", lines(turned, "\t", "c\tw\ta\tb\n"))
    # The held-out files are read with the same columns.
    for name, rows in (("valid", VALID), ("test", TEST)):
        put(folder / f"{name}.tsv", lines([(t, 1, h, r) for h, r, t in rows], "\t", "c\tw\ta\tb\n"))
    split = {"name": "files", "files": {"valid": "valid.tsv", "test": "test.tsv"}}
    assert named(ingest(name="triples", triples="t.tsv", split=split, **by_name)) == SPLITS
    by_place = {"head": 2, "relation": 3, "tail": 0, "header": True}
    assert named(ingest(name="triples", triples="t.tsv", split=split, **by_place)) == SPLITS
    with pytest.raises(DataError, match=r"t\.tsv: has no column 'x' \(dataset\.tail\).*; it has c, w, a, b"):
        ingest(name="triples", triples="t.tsv", split=split, head="a", relation="b", tail="x")


def test_a_tsv_knows_no_quotes(ingest: Ingest, folder: Path) -> None:
    odd: list[Triple] = [('"ann" of x', "knows", '"'), ('"', "#likes", "a, b"), ("a, b", "knows", '"ann" of x')]
    put_splits(folder, train=odd, valid=[odd[0][::-1]], test=[('"', "knows", "a, b")])
    put(folder / "valid.txt", lines([("a, b", "#likes", '"')]))
    assert named(ingest(name="triples", path=str(folder)))["train"] == odd


def test_a_first_line_of_a_csv_is_names(ingest: Ingest, folder: Path) -> None:
    put_splits(folder)
    put(folder / "t.csv", lines(TRAIN, ",", "who,how,whom\n"))
    assert named(ingest(name="triples", triples="t.csv", split=FILES))["train"] == TRAIN
    put(folder / "t.csv", lines(TRAIN, ","))
    assert named(ingest(name="triples", triples="t.csv", split=FILES, header=False))["train"] == TRAIN
    put(folder / "u.tsv", lines(TRAIN, "\t", "subject\tpredicate\tobject\n"))
    assert named(ingest(name="triples", triples="u.tsv", split=FILES))["train"] == TRAIN


def test_many_files(ingest: Ingest, folder: Path) -> None:
    put_splits(folder)
    put(folder / "part-0.tsv", lines(TRAIN[:2]))
    put(folder / "part-1.tsv.gz", lines(TRAIN[2:]))
    assert named(ingest(name="triples", triples="part-*", split=FILES)) == SPLITS
    split = {"name": "files", "files": {"train": ["part-0.tsv", "part-1.tsv.gz"], **FILES["files"]}}  # type: ignore[dict-item]
    assert named(ingest(name="triples", split=split)) == SPLITS


def test_weights_and_times(ingest: Ingest, folder: Path) -> None:
    rows = {
        split: [(*row, 0.5 + i, f"2020-01-{i + 1:02d}") for i, row in enumerate(triples)]
        for split, triples in SPLITS.items()
    }
    put_splits(folder, **rows)
    section = {"name": "triples", "path": str(folder), "weight": 3, "time": 4}
    store = ingest(**section)
    assert store.table("split/train").columns["weight"] == "float"
    assert store.read("split/test").to_pydict()["weight"] == [0.5, 1.5]
    assert store.read("split/test").to_pydict()["time"] == [1577836800, 1577923200]
    assert DATASETS.create(DATASETS.config(section)).time_unit() == "seconds"
    put_splits(
        folder, **{split: [(*row[:3], i, 1990 + i) for i, row in enumerate(each)] for split, each in rows.items()}
    )
    assert DATASETS.create(DATASETS.config(section)).time_unit() == "number"
    assert ingest(**section).read("split/train").to_pydict()["time"] == [1990, 1991, 1992, 1993]
    assert DATASETS.create(DATASETS.config({"name": "triples", "path": str(folder)})).time_unit() is None


def test_types_in_a_table(ingest: Ingest, folder: Path) -> None:
    put_splits(folder)
    put(folder / "types.csv", "entity,type\nann,person\ncy,person\ndan,place/x\nbob,person\nnobody,ghost\n")
    store = ingest(name="triples", path=str(folder), types="types.csv")
    person, place = store.manifest.node_types
    assert (person.name, person.num_nodes, place.num_nodes) == ("person", 3, 1)
    assert place.name.startswith("place_x~")
    assert named(store) == SPLITS
    assert store.read("split/train").to_pydict()["dst"] == [1, 2, 3, 2]
    found = {edge.name.replace(place.name, "place"): edge.num_edges for edge in store.manifest.edge_types}
    assert found == {"person__to__person": 2, "person__to__place": 1, "place__to__person": 1}
    assert store.read(f"edges/{place.name}__to__person").to_pydict() == {"src": [0], "dst": [2]}
    put(folder / "types.csv", "ann,person\ncy,person\ndan,place\n")
    with pytest.raises(DataError, match=r"types\.csv: gives no type for 1 entities, 'bob' the first"):
        ingest(name="triples", path=str(folder), types="types.csv")
    put(folder / "types.csv", "ann,person\ncy,\ndan,place\nann,place\nbob,person\n")
    with pytest.raises(DataError, match=r"types\.csv \(row 1, column 1\): the type is missing") as error:
        ingest(name="triples", path=str(folder), types="types.csv")
    assert "types.csv (row 0, column 1): 'ann' has another type too" in str(error.value)


def test_features(ingest: Ingest, folder: Path) -> None:
    put_splits(folder)
    put(folder / "entities.txt", "dan\ncy\nbob\nann\n")
    matrix = np.arange(8, dtype=np.float64).reshape(4, 2)
    np.save(folder / "x.npy", matrix)
    store = ingest(name="triples", path=str(folder), features="x.npy")
    np.testing.assert_array_equal(store.column("nodes/entity", "feat"), matrix)
    assert store.manifest.node_types[0].features[0].model_dump()["dim"] == 2
    put(folder / "types.tsv", "dan\tplace\ncy\tperson\nbob\tperson\nann\tperson\n")
    store = ingest(name="triples", path=str(folder), features="x.npy", types="types.tsv")
    np.testing.assert_array_equal(store.column("nodes/place", "feat"), matrix[:1])
    np.testing.assert_array_equal(store.column("nodes/person", "feat"), matrix[1:])
    matrix[2, 1] = np.nan
    np.save(folder / "x.npy", matrix)
    with pytest.raises(DataError, match=r"x\.npy \(row 2, column 1\): nan is not a finite number"):
        ingest(name="triples", path=str(folder), features="x.npy")
    np.save(folder / "x.npy", matrix[:3])
    with pytest.raises(DataError, match=r"x\.npy: has 3 rows, .*entities\.txt names 4 entities"):
        ingest(name="triples", path=str(folder), features="x.npy")
    (folder / "entities.txt").unlink()
    with pytest.raises(DataError, match=r"x\.npy: has rows without ids.*dataset\.entities"):
        ingest(name="triples", path=str(folder), features="x.npy")


def test_features_of_relations(ingest: Ingest, folder: Path) -> None:
    put_splits(folder)
    put(folder / "relations.txt", "likes\nknows\n")
    np.save(folder / "r.npy", np.array([[1.0], [2.0]]))
    store = ingest(name="triples", path=str(folder), relation_features="r.npy")
    assert store.manifest.relation_feature_dim == 1
    assert store.read("relations", ["name", "feat"]).to_pydict() == {"name": ["likes", "knows"], "feat": [[1.0], [2.0]]}
    with pytest.raises(DataError, match=r"relations\.txt: is no \.npy, which features of relations are read from"):
        ingest(name="triples", path=str(folder), relation_features="relations.txt")


def test_features_by_number(ingest: Ingest, folder: Path) -> None:
    put_splits(folder, train=[(0, 5, 3), (3, 5, 1), (1, 7, 0)], valid=[(0, 7, 1)], test=[(0, 7, 3)])
    np.save(folder / "x.npy", np.arange(4, dtype=np.float32)[:, None])
    store = ingest(name="triples", path=str(folder), features="x.npy")
    assert store.column("nodes/entity", "feat").tolist() == [[0], [1], [3]]
    np.save(folder / "x.npy", np.arange(3, dtype=np.float32)[:, None])
    with pytest.raises(DataError, match=r"has 3 rows, and none for the entity 3"):
        ingest(name="triples", path=str(folder), features="x.npy")


def test_only_content_and_names_of_files_count(folder: Path, home: Home) -> None:
    def fingerprint(**section: Any) -> Any:
        recipe: Any = SimpleNamespace(dataset=DATASETS.config({"name": "triples", **section}), version_moment=None)
        return source(recipe, SourceDigests(home))

    before = fingerprint(path=str(put_splits(folder / "a")))
    assert fingerprint(path=str(put_splits(folder / "b"))) == before
    put(folder / "b/test.txt", lines(VALID))
    assert fingerprint(path=str(folder / "b")) != before
    put(folder / "a/entities.txt", "ann\n")
    assert fingerprint(path=str(folder / "a")) != before
    assert fingerprint(path=str(folder / "nowhere")) == fingerprint(triples="missing.tsv")


def test_where_the_files_lie_decides_nothing(ingest: Ingest, folder: Path) -> None:
    repeated = {"train": [*TRAIN, TRAIN[0]]}
    first = ingest(name="triples", path=str(put_splits(folder / "a", **repeated)))
    second = ingest(name="triples", path=str(put_splits(folder / "b", **repeated)))
    assert first.manifest.adjusted == {"train.txt: triples that stand twice dropped": 1}
    assert (first.folder, first.manifest.digest) == (second.folder, second.manifest.digest)


REAL = {
    "nations": (14, 55, {"train": 1592, "valid": 199, "test": 201}, 0),
    "umls": (135, 46, {"train": 5216, "valid": 652, "test": 661}, 0),
    "wn18rr": (40943, 11, {"train": 86835, "valid": 3034, "test": 3134}, 420),
    "fb15k-237": (14541, 237, {"train": 272115, "valid": 17535, "test": 20466}, 37),
}


@pytest.mark.parametrize("name", REAL)
def test_public_benchmarks(ingest: Ingest, shared_data: Path, name: str) -> None:
    folder = shared_data / "knowledge" / name
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    entities, relations, splits, unseen = REAL[name]
    store = ingest(name="triples", path=str(folder))
    manifest = store.manifest
    assert (manifest.num_nodes, manifest.num_relations, manifest.splits) == (entities, relations, splits)
    assert sum(manifest.adjusted.values()) == unseen
    raw = pq.read_table(folder / "test.parquet").to_pydict()
    assert store.read("split/test").to_pydict() == {"src": raw["h"], "relation": raw["r"], "dst": raw["t"]}


def test_a_blank_node_is_of_its_file(ingest: Ingest, folder: Path) -> None:
    for name in ("a", "b"):
        edges = "".join(f"<{x}> <p> <{y}> .\n" for x in "uvw" for y in "xyz")
        put(folder / f"{name}.nt", f"{edges}_:b0 <p> <{name}> .\n_:{name} <p> _:b0 .\n")
    store = ingest(name="triples", triples=["a.nt", "b.nt"])
    ids = [name for name in store.read("ids/entity")["original_id"].to_pylist() if name.startswith("_:")]
    assert ids == ["_:a@a.nt", "_:b0@a.nt", "_:b0@b.nt", "_:b@b.nt"]
    said = "1 labels of blank nodes stand in several files, such as '_:b0@a.nt': those of each file are nodes of their"
    assert said in str(store.manifest.warnings)
    shared = ingest(name="triples", triples=["a.nt", "b.nt"], blank_nodes="shared")
    ids = [name for name in shared.read("ids/entity")["original_id"].to_pylist() if name.startswith("_:")]
    assert ids == ["_:a", "_:b", "_:b0"]
    assert not shared.manifest.warnings
    (folder / "more").mkdir()
    (folder / "b.nt").rename(folder / "more" / "a.nt")
    alike = ingest(name="triples", triples=["a.nt", "more/a.nt"])
    assert {"_:b0@0-a.nt", "_:b0@1-a.nt"} <= set(alike.read("ids/entity")["original_id"].to_pylist())
    one = ingest(name="triples", triples="a.nt")
    assert "_:b0" in one.read("ids/entity")["original_id"].to_pylist()


@pytest.mark.parametrize("other", ["1.0", "01", " 1"])
def test_a_number_written_in_two_ways_is_told(other: str, ingest: Ingest, folder: Path) -> None:
    rows = "".join(f"{i}\tlikes\t{(i + step) % 6}\n" for i in range(6) for step in (1, 2))
    put(folder / "t.tsv", f"{rows}{other}\tlikes\t2\n{other}\tlikes\t3\n")
    store = ingest(name="triples", triples="t.tsv")
    assert f"{min(other, '1')!r} and {max(other, '1')!r} are two entities" in str(store.manifest.warnings)
    assert "(2 such entities); if they are one, write them alike" in str(store.manifest.warnings)
