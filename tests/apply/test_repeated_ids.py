"""Ids that name several nodes or graphs: the file that asks about them says which, as files of predictions do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from configs.errors import DataError
from tasks.apply.given import read_rows
from tasks.inference.predictor import evaluating
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.ids import IdMap
from tests.apply.test_worker import Case, shuffle
from tests.finished import dataset
from tests.support import as_partition, link_graph, node_graph


def write(folder: Path, kind: str = "csv", **columns: Any) -> Path:
    path = folder / f"given.{kind}"
    table = pa.table(columns)
    table.to_pandas().to_csv(path, index=False) if kind == "csv" else pq.write_table(table, path)
    return path


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """Links between nodes of which three (0, 1 and 150) are called n1."""
    graph = as_partition(link_graph(tmp_path / "graph", dim=8))
    shuffle(graph)
    ids = [f"n{1 if i in (0, 150) else i}" for i in range(200)]
    return Case(tmp_path, graph, dataset(tmp_path / "data", graph, ids), "graphsage")


def expected(case: Case, sources: list[int], targets: list[int]) -> Any:
    place = np.argsort(np.load(case.graph.folder / "node_ids.npy"))
    pairs = np.stack([place[sources], place[targets]], 1)
    model, vectors = case.model, torch.from_numpy(case.vectors())
    with evaluating(model):
        return case.predictor.pair_scores(model, vectors, pairs)


@pytest.mark.parametrize(
    ("kind", "source_row", "target_row"),
    [
        ("csv", [1, 150, 99], [5, 0, 1]),
        ("parquet", [1, 150, 99], [5, 0, 1]),
        ("csv", [1.0, 150.0, None], [None, 0.0, 1.0]),
        ("parquet", [1.0, 150.0, None], [None, 0.0, 1.0]),
    ],
)
def test_pairs_of_repeated_ids_are_told_apart_by_their_rows(
    case: Case, kind: str, source_row: list[Any], target_row: list[Any]
) -> None:
    asked = {"source": ["n1", "n1", "n7"], "target": ["n5", "n1", "n1"]}
    given = write(case.folder, kind, **asked, source_row=source_row, target_row=target_row)
    assert case.serve(given={"pairs": given})["rows"] == 3
    scores = case.table().column("score").to_numpy()
    np.testing.assert_allclose(scores, expected(case, [1, 150, 7], [5, 0, 1]), atol=1e-6)
    # What comes out says which it was, and can be asked about again.
    assert case.table().column_names == ["source", "source_row", "target", "target_row", "score"]
    assert case.table().column("source_row").to_pylist() == [1, 150, 7]
    again = write(case.folder, "parquet", **{name: case.table().column(name) for name in case.table().column_names})
    case.serve(given={"pairs": again})
    np.testing.assert_array_equal(case.table().column("score").to_numpy(), scores)


def test_a_file_of_predictions_of_pairs_can_be_asked_about(case: Case) -> None:
    """The very columns that evaluation writes (`IdMap.columns` of both ends)."""
    store = DatasetStore(case.data.folder, case.data.manifest)
    names = IdMap(GraphStore(case.graph.folder, case.graph.manifest), store)
    nodes = np.argsort(np.load(case.graph.folder / "node_ids.npy"))
    columns = names.columns(nodes[[0, 150]], "source") | names.columns(nodes[[1, 8]], "target")
    assert list(columns) == ["source", "source_row", "target", "target_row"]
    given = write(case.folder, "parquet", **columns, split=["valid", "test"], score=[0.5, 0.5])
    case.serve(given={"pairs": given})
    np.testing.assert_allclose(case.table().column("score").to_numpy(), expected(case, [0, 150], [1, 8]), atol=1e-6)


@pytest.mark.parametrize(
    ("columns", "column"),
    [
        ({}, "source"),
        ({"row": [0, 1]}, "source"),
        ({"target_row": [5, 6]}, "source"),
        ({"source_row": [5, 2]}, "source"),
        ({"source_row": [5, 1.5]}, "source"),
        ({"source_row": ["5", "-1"]}, "source"),
        ({"source": ["n5", "n6"], "target": ["n7", "n1"]}, "target"),
        ({"source": ["n5", "n6"], "target": ["n7", "n1"], "source_row": [0, 1]}, "target"),
    ],
)
def test_a_pair_that_is_not_clear_is_named_with_the_column_that_tells(
    case: Case, columns: dict[str, Any], column: str
) -> None:
    given = write(case.folder, **{"source": ["n5", "n1"], "target": ["n5", "n6"], **columns})
    message = (
        rf"given\.csv \(column {column}\): 'n1' \(row 1\) names 3 of them; say which in a column {column}_row, as files"
    )
    with pytest.raises(DataError, match=message):
        case.serve(given={"pairs": given})


@pytest.mark.parametrize(("kind", "rows"), [("csv", [150.0, None]), ("parquet", [150.0, None])])
def test_nodes_whose_rows_are_decimal_numbers(case: Case, kind: str, rows: list[Any]) -> None:
    """As pandas writes a column with a gap."""
    case.serve("embeddings", given={"nodes": write(case.folder, kind, id=["n1", "n7"], row=rows)})
    assert case.table("embeddings.parquet").column("row").to_pylist() == [150, 7]


@pytest.mark.parametrize(
    ("kind", "cells", "rows"),
    [
        ("csv", ["3", "3.0", "3.", "12.000"], [3, 3, 3, 12]),
        ("csv", ["", "x", "-1", "1.5"], [-1, -1, -1, -1]),
        ("csv", ["1e3", "nan", "+2", "9" * 19], [-1, -1, -1, -1]),
        ("parquet", [3.0, 2.0**40, 1e10, 0.0], [3, 2**40, 10**10, 0]),
        ("parquet", [1.5, -1.0, float("nan"), None], [-1, -1, -1, -1]),
        ("parquet", [float("inf"), float("-inf"), 1e300, -0.0], [-1, -1, -1, 0]),
        ("parquet", pa.array([3.0, None], pa.float32()), [3, -1]),
        ("parquet", pa.array([3, None], pa.uint8()), [3, -1]),
        ("parquet", pa.array([2**64 - 1, 2**63 - 1], pa.uint64()), [-1, -1]),
        ("parquet", pa.array([True, False]), [-1, -1]),
        ("csv", [], []),
        ("parquet", pa.array([], pa.int64()), []),
    ],
)
def test_which_cells_are_rows(tmp_path: Path, kind: str, cells: Any, rows: list[int]) -> None:
    path = Path(write(tmp_path, kind, id=["a"] * len(cells), some_row=cells))
    found = read_rows(path, "some_row")
    assert (found.dtype, found.tolist()) == (np.dtype(np.int64), rows)
    assert read_rows(path) is None


@pytest.mark.parametrize("cells", [pa.array([b"\xff"]), pa.array([[1, 2]]), pa.array([{"a": 1}])])
def test_lists_and_bytes_are_no_rows(tmp_path: Path, cells: pa.Array) -> None:
    assert read_rows(Path(write(tmp_path, "parquet", id=["a"], row=cells))) is None


MOMENTS = ["2023-01-01", "2023-04-01T12:00:00"]


@pytest.fixture(params=["numbers", "texts"])
def dated(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    """300 nodes: 150 customers at two moments."""
    graph = as_partition(node_graph(tmp_path / "graph"))
    shuffle(graph)
    ids: list[Any] = [1000 + i // 2 for i in range(300)]
    ids = [f"c{one}" for one in ids] if request.param == "texts" else ids
    data = dataset(tmp_path / "data", graph, ids, moments=[MOMENTS[i % 2] for i in range(300)])
    return Case(tmp_path, graph, data, "graphsage")


def test_predictions_have_both(dated: Case) -> None:
    dated.serve()
    table = dated.table()
    assert table.column_names[:3] == ["id", "entity", "moment"]
    rows = table.to_pylist()
    assert all(row["id"] == f"{row['entity']}@{row['moment']}" for row in rows)
    assert {row["moment"] for row in rows} == set(MOMENTS)
    assert len({row["entity"] for row in rows}) == 150


@pytest.mark.parametrize("format", ["parquet", "word2vec"])
def test_vectors_have_both_where_there_are_columns(dated: Case, format: str) -> None:
    dated.serve("embeddings", format)
    if format == "parquet":
        assert dated.table("embeddings.parquet").column_names == ["id", "entity", "moment", "embedding"]
        return
    (path,) = (dated.folder / "work").glob("embeddings*")
    assert path.read_text().splitlines()[1].split()[0].endswith(f"@{MOMENTS[0]}")


def test_rows_are_asked_for_by_either(dated: Case) -> None:
    dated.serve()
    known = {row["id"]: row for row in dated.table().to_pylist()}
    some = [known[name] for name in sorted(known)[:5]]
    pairs = dated.csv(entity=[row["entity"] for row in some], moment=[row["moment"] for row in some])
    dated.serve(given={"nodes": pairs})
    assert [row["id"] for row in dated.table().to_pylist()] == [row["id"] for row in some]
    np.testing.assert_allclose(dated.table()["score"].to_numpy(), [row["score"] for row in some], rtol=1e-5)
    dated.serve(given={"nodes": dated.csv(id=[row["id"] for row in some])})
    assert [row["entity"] for row in dated.table().to_pylist()] == [row["entity"] for row in some]
    with pytest.raises(DataError, match="is not in the data"):
        dated.serve(given={"nodes": dated.csv(entity=[some[0]["entity"]], moment=["2023-04-02"])})
