from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.errors import DataError
from tasks.serve import neighbors
from tasks.serve.neighbors import nearest
from tasks.serve.outputs import NpyVectors, ParquetVectors

N, DIM = 300, 6


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbors, "_CHUNK_ROWS", 64)
    monkeypatch.setattr(neighbors, "_QUERIES", 7)


def vectors() -> np.ndarray:
    x = np.random.default_rng(0).standard_normal((N, DIM)).astype(np.float32)
    x[40] = x[41] = x[200]  # equal ones
    x[5] = 0
    return x


def write(folder: Path, kind: str, ids: list[Any], x: np.ndarray) -> Path:
    path = folder / f"vectors.{kind}"
    with ParquetVectors(path) if kind == "parquet" else NpyVectors(path, len(x), x.shape[1]) as writer:
        for start in range(0, len(x), 50):
            writer.add({"id": pa.array(ids[start : start + 50])}, x[start : start + 50])
    return path


def plain(x: np.ndarray, query: int, k: int, metric: str) -> tuple[list[int], np.ndarray]:
    x = x.astype(np.float64)
    if metric == "cosine":
        x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-30)
    scores = np.round(x @ x[query], 6)
    scores[query] = -np.inf
    order = np.argsort(-scores, kind="stable")[:k]
    return order.tolist(), scores[order]


@pytest.mark.parametrize("kind", ["parquet", "npy"])
@pytest.mark.parametrize("metric", ["cosine", "dot"])
@pytest.mark.parametrize("text", [False, True])
def test_neighbors_are_those_of_brute_force(tmp_path: Path, kind: str, metric: Any, text: bool) -> None:
    x = vectors()
    ids: list[Any] = [f"n{i}" for i in range(N)] if text else [10 * i for i in range(N)]
    path = write(tmp_path, kind, ids, x)
    queries = [3, 40, 200, 5, 299, *range(100, 112)]
    found = list(nearest(path, [ids[q] for q in queries], 10, metric))
    assert [one.node for one in found] == [ids[q] for q in queries]
    for query, one in zip(queries, found, strict=True):
        rows, scores = plain(x, query, 10, metric)
        np.testing.assert_allclose(one.scores, scores, atol=1e-5)
        if query != 5:  # a zero vector is equally far from all
            assert one.ids == [ids[row] for row in rows]
        assert ids[query] not in one.ids
    assert found[1].ids[:2] == [ids[41], ids[200]]
    assert found[3].scores.tolist() == [0.0] * 10


def test_ids_may_come_as_texts_and_k_be_large(tmp_path: Path) -> None:
    path = write(tmp_path, "npy", list(range(N)), vectors())
    (found,) = nearest(path, ["7"], 10_000)
    assert found.node == 7
    assert sorted(found.ids) == [i for i in range(N) if i != 7]
    assert (np.diff(found.scores) <= 0).all()


def test_vectors_of_other_programs_are_read(tmp_path: Path) -> None:
    x = vectors()
    flat = pa.FixedSizeListArray.from_arrays(pa.array(x.astype(np.float64).ravel()), DIM)
    pq.write_table(pa.table({"name": [f"n{i}" for i in range(N)], "x": flat}), tmp_path / "own.parquet")
    (found,) = nearest(tmp_path / "own.parquet", ["n3"], 4)
    assert found.ids == [f"n{i}" for i in plain(x, 3, 4, "cosine")[0]]


def test_vectors_that_are_no_numbers_are_near_to_nothing(tmp_path: Path) -> None:
    x = vectors()
    x[9] = np.nan
    path = write(tmp_path, "npy", list(range(N)), x)
    (found,) = nearest(path, [3], N)
    assert 9 not in found.ids
    assert len(found.ids) == N - 2


@pytest.mark.parametrize("metric", ["cosine", "dot"])
def test_vectors_that_are_no_numbers_hide_no_neighbor(tmp_path: Path, metric: Any) -> None:
    x = vectors()
    kept = np.flatnonzero(np.arange(N) % 10)
    x[::10] = np.nan
    path = write(tmp_path, "npy", list(range(N)), x)
    (found,) = nearest(path, [3], 5, metric)
    rows, scores = plain(x[kept], kept.tolist().index(3), 5, metric)
    assert found.ids == kept[rows].tolist()
    np.testing.assert_allclose(found.scores, scores, atol=1e-5)


def test_mistakes_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "npy", list(range(N)), vectors())
    with pytest.raises(DataError, match=r"vectors\.npy: has no node 4711; it has 300 such as 0, 1, 2"):
        list(nearest(path, [3, 4711], 1))
    with pytest.raises(DataError, match="'x' is no id here: the ids of this data are whole numbers"):
        list(nearest(path, ["x"], 1))
    path.with_name("vectors.ids.parquet").rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"its ids are missing: vectors\.ids\.parquet"):
        list(nearest(path, [3], 1))
    with pytest.raises(DataError, match="make one with: graphmill export embeddings"):
        list(nearest(tmp_path / "no.npy", [3], 1))
    pq.write_table(pa.table({"a": [1]}), tmp_path / "flat.parquet")
    with pytest.raises(DataError, match=r"needs one column of fixed-size lists; it has a"):
        list(nearest(tmp_path / "flat.parquet", [3], 1))
    (tmp_path / "torn.npy").write_bytes(path.read_bytes()[:60])
    with pytest.raises(DataError, match=r"is not a \.npy array"):
        list(nearest(tmp_path / "torn.npy", [3], 1))
