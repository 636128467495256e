"""An entity and its moment are two columns of what is written, and of what is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import DataError
from tests.apply.test_worker import Case, shuffle
from tests.finished import dataset
from tests.support import as_partition, node_graph

MOMENTS = ["2023-01-01", "2023-04-01T12:00:00"]


@pytest.fixture(params=["numbers", "texts"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    """300 nodes: 150 customers at two moments."""
    graph = as_partition(node_graph(tmp_path / "graph"))
    shuffle(graph)
    ids: list[Any] = [1000 + i // 2 for i in range(300)]
    ids = [f"c{one}" for one in ids] if request.param == "texts" else ids
    data = dataset(tmp_path / "data", graph, ids, moments=[MOMENTS[i % 2] for i in range(300)])
    return Case(tmp_path, graph, data, "graphsage")


def test_predictions_have_both(case: Case) -> None:
    case.serve()
    table = case.table()
    assert table.column_names[:3] == ["id", "entity", "moment"]
    rows = table.to_pylist()
    assert all(row["id"] == f"{row['entity']}@{row['moment']}" for row in rows)
    assert {row["moment"] for row in rows} == set(MOMENTS)
    assert len({row["entity"] for row in rows}) == 150


@pytest.mark.parametrize("format", ["parquet", "word2vec"])
def test_vectors_have_both_where_there_are_columns(case: Case, format: str) -> None:
    case.serve("embeddings", format)
    if format == "parquet":
        assert case.table("embeddings.parquet").column_names == ["id", "entity", "moment", "embedding"]
        return
    (path,) = (case.folder / "work").glob("embeddings*")
    assert path.read_text().splitlines()[1].split()[0].endswith(f"@{MOMENTS[0]}")


def test_rows_are_asked_for_by_either(case: Case) -> None:
    case.serve()
    known = {row["id"]: row for row in case.table().to_pylist()}
    some = [known[name] for name in sorted(known)[:5]]
    pairs = case.csv(entity=[row["entity"] for row in some], moment=[row["moment"] for row in some])
    case.serve(given={"nodes": pairs})
    assert [row["id"] for row in case.table().to_pylist()] == [row["id"] for row in some]
    np.testing.assert_allclose(case.table()["score"].to_numpy(), [row["score"] for row in some], rtol=1e-5)
    case.serve(given={"nodes": case.csv(id=[row["id"] for row in some])})
    assert [row["entity"] for row in case.table().to_pylist()] == [row["entity"] for row in some]
    with pytest.raises(DataError, match="is not in the data"):
        case.serve(given={"nodes": case.csv(entity=[some[0]["entity"]], moment=["2023-04-02"])})
