"""Labels as pairs of a node and a label, and as groups of nodes, a line each."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from configs.errors import DataError, RecipeError
from configs.registry import DATASETS
from tasks.apply.model.needs import label_columns
from tasks.ingest.graph_tables import memberships
from tasks.storage.dataset_store import DatasetStore
from tests.ingest.conftest import Ingest
from tests.ingest.small_tables import SPLIT, save

LINKS = "1\t2\n2\t3\n3\t4\n4\t5\n5\t6\n6\t7\n7\t8\n8\t9\n9\t12\n"
NODES = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12]
PAIRS = [(1, 30), (12, 4), (2, 30), (3, 30), (3, 4), (4, 4), (5, 100), (6, 30), (7, 4), (7, 30), (7, 100)]
EDGES = {"files": "links.txt", "source": "0", "target": "1"}


def section(labels: dict[str, Any] | None = None, **change: Any) -> dict[str, Any]:
    plain = {"files": "groups.txt", "form": "pairs", "id": "0", "label": "1"}
    kind = {"name": "tables", "task_type": "multilabel", "edges": EDGES, "split": SPLIT}
    return {**kind, "labels": {**plain, **(labels or {})}, **change}


def write(text: str | None = None, name: str = "groups.txt") -> None:
    Path("links.txt").write_text(LINKS)
    words = "".join(f"{node}\t{group}\n" for node, group in PAIRS) if text is None else text
    if name.endswith(".gz"):
        Path(name).write_bytes(gzip.compress(words.encode()))
    else:
        Path(name).write_text(words)


def labels_of(store: DatasetStore) -> dict[Any, set[str] | None]:
    """Return the names of each node's labels; None where it has none."""
    names = store.read("labels").column("name").to_pylist()
    assert store.manifest.num_tasks == len(names)
    found: dict[Any, set[str] | None] = {}
    column = store.column("nodes/node", "label")
    ids = store.read("ids/node").column("original_id").to_pylist()
    for node, row in zip(ids, column, strict=True):
        assert np.isnan(row).all() or np.isin(row, [0, 1]).all()
        found[node] = None if np.isnan(row[0]) else {names[t] for t in np.flatnonzero(row)}
    return found


def expected(pairs: list[tuple[Any, Any]], nodes: list[Any] = NODES) -> dict[Any, set[str] | None]:
    return {node: {str(label) for one, label in pairs if one == node} or None for node in nodes}


def refused(ingest: Ingest, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        ingest(**options)
    return str(caught.value)


@pytest.mark.parametrize("name", ["groups.txt", "groups.txt.gz", "groups.csv", "groups.parquet"])
def test_rows_of_a_node_and_a_label(ingest: Ingest, folder: Path, name: str) -> None:
    write(name=name if ".txt" in name else "unused.txt")
    options: dict[str, Any] = {"files": name}
    if ".txt" not in name:
        save(name, pa.table({"who": [node for node, _ in PAIRS], "what": [label for _, label in PAIRS]}))
        options |= {"id": "who", "label": "what"}
    store = ingest(**section(options))
    assert labels_of(store) == expected(PAIRS)
    assert store.read("labels").column("name").to_pylist() == ["4", "30", "100"], "as numbers, where all are numbers"
    manifest = store.manifest
    assert (manifest.task_type, manifest.num_classes, manifest.metric) == ("multilabel", 2, "rocauc")
    split = np.sort(np.concatenate([store.column(f"split/{name}", "node_id") for name in ("train", "valid", "test")]))
    assert split.tolist() == [0, 1, 2, 3, 4, 5, 6, 9], "nodes 8 and 9 have no label and are in no split"
    assert not manifest.adjusted
    assert label_columns(manifest, store) == ["4", "30", "100"], "a model knows which labels its scores are of"


def test_ids_and_labels_may_be_texts(ingest: Ingest, folder: Path) -> None:
    Path("links.txt").write_text("ann bob\nbob eve\neve joe\n")
    Path("groups.txt").write_text("# who what\nann jazz\nbob rock\nann rock\njoe 7\n\neve jazz\n")
    pairs = [("ann", "jazz"), ("bob", "rock"), ("ann", "rock"), ("joe", "7"), ("eve", "jazz")]
    assert labels_of(ingest(**section(text_ids=True))) == expected(pairs, ["ann", "bob", "eve", "joe"])


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"min_members": 2}, {4, 30, 100}),
        ({"min_members": 3}, {4, 30}),
        ({"min_members": 5}, {30}),
        ({"most": 1}, {30}),
        ({"most": 2}, {4, 30}),
        ({"most": 9, "min_members": 4}, {4, 30}),
    ],
)
def test_only_large_groups(ingest: Ingest, folder: Path, options: dict[str, int], kept: set[int]) -> None:
    write()
    store = ingest(**section(options))
    assert labels_of(store) == expected([pair for pair in PAIRS if pair[1] in kept])
    left_out = {"groups.txt: labels of too few nodes left out": 3 - len(kept)} if len(kept) < 3 else {}
    assert store.manifest.adjusted == left_out


def test_of_groups_of_one_size_the_first_stay(ingest: Ingest, folder: Path) -> None:
    pairs = [(1, 10), (2, 9), (3, 10), (4, 9), (5, 8), (6, 10), (7, 9), (8, 9), (9, 10)]
    write("".join(f"{node} {label}\n" for node, label in pairs))
    assert labels_of(ingest(**section({"most": 1}))) == expected([pair for pair in pairs if pair[1] == 9])


def test_what_is_said_twice_counts_once(ingest: Ingest, folder: Path) -> None:
    write("".join(f"{node} {group}\n" for node, group in PAIRS) + "5 100\n5 100\n")
    store = ingest(**section({"min_members": 3}))
    assert labels_of(store) == expected([pair for pair in PAIRS if pair[1] != 100]), "100 has two members, not four"
    assert store.manifest.adjusted["groups.txt: rows that say again what label a node has dropped"] == 2


def test_groups_a_line_each(ingest: Ingest, folder: Path) -> None:
    write("3\t12 4\t7\n1\t2\t3\t6\t7\n\n7\t5\n")
    pairs = [(node, "012"[i]) for i, nodes in enumerate([(3, 12, 4, 7), (1, 2, 3, 6, 7), (7, 5)]) for node in nodes]
    groups = {"files": "groups.txt", "form": "groups"}
    assert labels_of(ingest(**section() | {"labels": groups})) == expected(pairs)
    few = ingest(**section() | {"labels": {**groups, "most": 1}})
    assert labels_of(few) == expected([pair for pair in pairs if pair[1] == "1"])
    assert few.read("labels").column("name").to_pylist() == ["1"]


def test_groups_over_several_files_with_another_separator(ingest: Ingest, folder: Path) -> None:
    Path("links.txt").write_text("a-1 b-1\nb-1 c-1\nc-1 d-1\n")
    Path("g-0.cmty").write_text("a-1, b-1\n")
    Path("g-1.cmty").write_text("c-1,d-1,a-1\n")
    labels = {"files": "g-*.cmty", "form": "groups", "delimiter": ","}
    pairs = [("a-1", 0), ("b-1", 0), ("c-1", 1), ("d-1", 1), ("a-1", 1)]
    found = labels_of(ingest(**section(text_ids=True) | {"labels": labels}))
    assert found == expected(pairs, ["a-1", "b-1", "c-1", "d-1"])


def test_a_large_group_is_one_line(ingest: Ingest, folder: Path) -> None:
    """100,000 members are 0.7 MB: more than an id or a class may have."""
    count = 100_000
    Path("links.txt").write_text("".join(f"{i} {i + 1}\n" for i in range(count - 1)))
    Path("groups.txt").write_text("\t".join(map(str, range(count))) + "\n5\t7\n")
    store = ingest(**section() | {"labels": {"files": "groups.txt", "form": "groups"}})
    column = store.column("nodes/node", "label")
    assert column[:, 0].all()
    assert np.flatnonzero(column[:, 1]).tolist() == [5, 7]


HUGE = "99999999999999999999999"
MISTAKES = [
    ("1 30\n77 4\n78 4\n", "groups.txt (row 1, column 0): unknown node id 77: it is not in", "(2 such rows)"),
    ("1 30\nbob 4\n", "groups.txt (row 1, column 0): the id 'bob' is a text, those in", "text_ids=true"),
    ("1 30\n2\n", "groups.txt (row 1): ", "columns, the others have 2"),
    ("1\n2\n", "groups.txt: has no column '1'", "it has 0"),
    ("# nothing\n", "groups.txt: ", "empty"),
    ("1 30\n-2 4\n", "groups.txt (row 1, column 0): the id -2 is negative", ""),
]
# All ids of a file are texts where one is no number: the others are not to blame.
GROUP_MISTAKES = [
    ("1\t2\n3\t4\t77\t78\n", "groups.txt (row 1, column 2): unknown node id 77", "on_unknown_id: drop"),
    ("1\t2\n3\tbob\t5\n", "groups.txt (row 1, column 1): the id 'bob' is a text", ""),
    (f"1\t2\n3\t4\n5\t{HUGE}\n", f"groups.txt (row 2, column 1): the id '{HUGE}' is a text, those", ""),
    ("\n\n", "groups.txt", "empty"),
]
FORMS = [*(("pairs", *one) for one in MISTAKES), *(("groups", *one) for one in GROUP_MISTAKES)]


@pytest.mark.parametrize(("form", "text", "begins", "has"), FORMS)
def test_wrong_rows_are_named(ingest: Ingest, folder: Path, form: str, text: str, begins: str, has: str) -> None:
    write(text)
    said = refused(
        ingest, **section() | ({"labels": {"files": "groups.txt", "form": form}} if form == "groups" else {})
    )
    assert said.startswith(begins)
    assert has in said
    assert HUGE not in text or "such rows" not in said


def test_empty_cells_are_named(ingest: Ingest, folder: Path) -> None:
    write()
    Path("groups.csv").write_text("id,label\n1,30\n2,\n,4\n3,\n")
    said = refused(ingest, **section({"files": "groups.csv", "id": "id", "label": "label"}))
    assert "groups.csv (row 1, column label): the label is missing; every row of form: pairs needs one" in said
    assert "(2 such rows)" in said
    assert "groups.csv (row 2, column id): the id is missing" in said
    Path("groups.csv").write_text("id,label\n")
    assert refused(ingest, **section({"files": "groups.csv", "id": "id", "label": "label"})).endswith("has no rows")
    save("groups.parquet", pa.table({"id": [1, 2], "label": [0.5, 1.5]}))
    said = refused(ingest, **section({"files": "groups.parquet", "id": "id", "label": "label"}))
    assert said == "groups.parquet (column label): is double; labels are texts or whole numbers"


@pytest.mark.parametrize("form", ["pairs", "groups"])
def test_unknown_ids_may_be_left_out(ingest: Ingest, folder: Path, form: str) -> None:
    lines = {"pairs": "1 0\n77 0\n2 0\n2 1\n3 1\n99 1\n", "groups": "1 77 2\n2 3 99\n"}
    write(lines[form])
    labels: dict[str, Any] = {"files": "groups.txt", "form": form, "on_unknown_id": "drop"}
    labels |= {"id": "0", "label": "1"} if form == "pairs" else {}
    store = ingest(**section() | {"labels": labels})
    assert labels_of(store) == expected([(1, 0), (2, 0), (2, 1), (3, 1)])
    assert store.manifest.adjusted == {"groups.txt: unknown ids dropped": 2}
    said = "groups.txt: 2 ids are left out, for no node has them (labels.on_unknown_id: drop)"
    assert store.manifest.warnings == (said,)
    write("77 0\n78 1\n" if form == "pairs" else "77 78\n")
    said = refused(ingest, **section() | {"labels": labels})
    assert said == "groups.txt: has 2 nodes, none of which is in the graph; are these their ids?"


def test_unknown_ids_of_a_row_a_node_may_be_left_out(ingest: Ingest, folder: Path) -> None:
    write("".join(f"{node},{node % 2}\n" for node in [*NODES, 77]), "labels.csv")
    labels = {"files": "labels.csv", "header": False, "id": "0", "label": "1"}
    assert "unknown node id 77" in refused(ingest, **section() | {"labels": labels})
    store = ingest(**section() | {"labels": {**labels, "on_unknown_id": "drop"}})
    assert store.column("nodes/node", "label")[:, 0].tolist() == [node % 2 for node in NODES]
    assert store.manifest.adjusted == {"labels.csv: unknown ids dropped": 1}


def test_too_few_members_and_too_many_labels(ingest: Ingest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write()
    said = refused(ingest, **section({"min_members": 6}))
    assert said == "groups.txt: has no label of 6 nodes (min_members); the most, 5, have '30'"
    monkeypatch.setattr(memberships, "MAX_ROW_BYTES", 8)
    said = refused(ingest, **section())
    assert said == "groups.txt: has 3 labels; a node's may take 8 bytes, 4 a label: min_members or most keeps fewer"
    assert ingest(**section({"most": 2})).manifest.num_tasks == 2


def test_a_matrix_beyond_memory_is_refused_before_it_is_made(
    ingest: Ingest, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.readers.limits.available_bytes", lambda: 1 << 20)
    monkeypatch.setattr("tasks.readers.limits.BATCH_BYTES", 64)
    count = 3000
    Path("links.txt").write_text("".join(f"{i} {i + 1}\n" for i in range(count)))
    Path("groups.txt").write_text("".join(f"{i} {i % 100}\n" for i in range(count)))
    said = refused(ingest, **section())
    assert "the matrix of 3,001 nodes by 100 labels (min_members or most keeps fewer) takes" in said
    assert ingest(**section({"most": 5})).manifest.num_tasks == 5


OPTIONS = [
    ({"min_members": 3, "form": "nodes"}, "form: nodes does not read min_members"),
    ({"most": 3, "form": "nodes"}, "form: nodes does not read most"),
    ({"form": "groups"}, "form: groups does not read id"),
    ({"form": "groups", "id": "id", "label": "label", "format": "csv"}, "groups is lines of text, not format: csv"),
    ({"label": "1,2"}, "form: pairs has one column of labels, not 2"),
    ({"min_members": 0}, "greater than or equal to 1"),
]


@pytest.mark.parametrize(("labels", "message"), OPTIONS)
def test_options_that_a_form_does_not_read(labels: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, RecipeError), match=message):
        DATASETS.config(section(labels))


@pytest.mark.parametrize("task_type", ["multiclass", "binary", "regression"])
def test_other_tasks_have_one_label(task_type: str) -> None:
    with pytest.raises(ValueError, match="form: pairs gives a node any number of labels; set task_type: multilabel"):
        DATASETS.config(section(task_type=task_type))
