from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.errors import DataError
from tasks.apply import neighbors
from tasks.apply.neighbors import VectorFile, nearest
from tasks.apply.outputs import NpyVectors, ParquetVectors
from tasks.readers.limits import BATCH_BYTES

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


@pytest.mark.parametrize("kind", ["parquet", "npy"])
@pytest.mark.parametrize("metric", ["cosine", "dot"])
@pytest.mark.parametrize("factor", [1e25, 1e-25, 1e-41])
def test_numbers_of_any_size_have_their_neighbors(tmp_path: Path, kind: str, metric: Any, factor: float) -> None:
    x = (vectors().astype(np.float64) * factor).astype(np.float32)
    path = write(tmp_path, kind, list(range(N)), x)
    if metric == "dot" and factor > 1:
        with pytest.raises(DataError, match=r"products are more than float32 holds .* take the metric cosine"):
            list(nearest(path, [3], 4, metric))
        return
    (found,) = nearest(path, [3], 4, metric)
    rows, scores = plain(x.astype(np.float64) / factor, 3, 4, metric)
    assert found.ids == rows
    if metric == "cosine":
        np.testing.assert_allclose(found.scores, scores, atol=1e-4)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e200])
def test_what_float32_does_not_hold_is_refused_by_row(tmp_path: Path, value: float) -> None:
    x = vectors().astype(np.float64)
    x[70, 2] = value
    flat = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), DIM)
    pq.write_table(pa.table({"id": range(N), "x": flat}), tmp_path / "own.parquet")
    with pytest.raises(
        DataError, match=rf"own\.parquet \(row 70, column x\): holds {re.escape(f'{value:g}')}; vectors"
    ):
        list(nearest(tmp_path / "own.parquet", [3], 4))
    np.save(tmp_path / "own.npy", x)
    pq.write_table(pa.table({"id": range(N)}), tmp_path / "own.ids.parquet")
    with pytest.raises(DataError, match=r"own\.npy \(row 70\): holds"):
        list(nearest(tmp_path / "own.npy", [3], 4))


def test_wide_vectors_are_read_in_batches_of_some_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbors, "_CHUNK_ROWS", 1 << 15)
    x = np.zeros((2000, 20_000), np.float32)
    x[:, 0] = np.arange(2000)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1])
    pq.write_table(pa.table({"id": range(len(x)), "x": flat}), tmp_path / "wide.parquet")
    np.save(tmp_path / "wide.npy", x)
    pq.write_table(pa.table({"id": range(len(x))}), tmp_path / "wide.ids.parquet")
    for name in ("wide.parquet", "wide.npy"):
        chunks = [(first, ids[0].as_py(), part.nbytes) for first, ids, part in VectorFile(tmp_path / name).chunks()]
        assert len(chunks) > 2
        assert all(first == name and size <= BATCH_BYTES for first, name, size in chunks)
    long = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2 << 20, np.float32)), 2 << 20)
    pq.write_table(pa.table({"id": [0], "x": long}), tmp_path / "long.parquet")
    with pytest.raises(DataError, match="a row may have 4,194,304"):
        list(nearest(tmp_path / "long.parquet", [0], 1))
    np.save(tmp_path / "wide.npy", np.zeros((1, 2 << 20), np.float32))
    with pytest.raises(DataError, match="a row may have 4,194,304"):
        VectorFile(tmp_path / "wide.npy")


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
