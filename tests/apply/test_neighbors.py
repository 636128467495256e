from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gensim.models import KeyedVectors
from safetensors.numpy import save_file

from configs.errors import DataError, RecipeError
from tasks.apply.vector_files import neighbors
from tasks.apply.vector_files import reader as vector_file
from tasks.apply.vector_files import rows as vector_rows
from tasks.apply.vector_files.formats import ENDINGS
from tasks.apply.vector_files.neighbors import nearest
from tasks.apply.vector_files.reader import VectorFile
from tasks.apply.vector_files.writers import open_vectors
from tasks.readers.limits import BATCH_BYTES

N, DIM = 300, 6


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_file, "_CHUNK_ROWS", 64)
    monkeypatch.setattr(neighbors, "_QUERIES", 7)


def vectors() -> np.ndarray:
    x = np.random.default_rng(0).standard_normal((N, DIM)).astype(np.float32)
    x[40] = x[41] = x[200]  # equal ones
    x[5] = 0
    return x


def write(folder: Path, format: str, ids: list[Any], x: np.ndarray) -> Path:
    path = folder / f"vectors{ENDINGS[format]}"
    with open_vectors(path, format, len(x), x.shape[1]) as writer:
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


@pytest.mark.parametrize("kind", ENDINGS)
@pytest.mark.parametrize("metric", ["cosine", "dot"])
@pytest.mark.parametrize("text", [False, True])
def test_neighbors_are_those_of_brute_force(tmp_path: Path, kind: str, metric: Any, text: bool) -> None:
    x = vectors()
    ids: list[Any] = [f"n{i}" for i in range(N)] if text else [10 * i for i in range(N)]
    path = write(tmp_path, kind, ids, x)
    queries = [3, 40, 200, 5, 299, *range(100, 112)]
    found = list(nearest(path, [ids[q] for q in queries], 10, metric))
    if kind.startswith("word2vec"):
        ids = [str(each) for each in ids]  # there all ids are words
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


@pytest.mark.parametrize("kind", ["parquet", "npy"])
@pytest.mark.parametrize("metric", ["cosine", "dot"])
@pytest.mark.parametrize("factor", [1e25, 1e-25, 1e-41])
def test_numbers_of_any_size_have_their_neighbors(tmp_path: Path, kind: str, metric: Any, factor: float) -> None:
    x = (vectors().astype(np.float64) * factor).astype(np.float32)
    path = write(tmp_path, kind, list(range(N)), x)
    if metric == "dot" and factor > 1:
        with pytest.raises(DataError, match=r"products exceed float32 .* take the metric cosine"):
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
    monkeypatch.setattr(vector_file, "_CHUNK_ROWS", 1 << 15)
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
    typed = tmp_path / "typed.parquet"
    names = ["drug:a", "gene:a", "gene:b"]
    pq.write_table(pa.table({"id": names, "x": pa.FixedSizeListArray.from_arrays(np.ones(6, np.float32), 2)}), typed)
    for name, hint in (("a", "; is it 'drug:a' or 'gene:a'\\?"), ("b", "; is it 'gene:b'\\?"), ("c", "; it has 3")):
        with pytest.raises(DataError, match=f"has no node '{name}'{hint}"):
            list(nearest(typed, [name], 1))
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


def column(x: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1])


@pytest.mark.parametrize("binary", [False, True])
def test_files_of_gensim_are_read(tmp_path: Path, binary: bool) -> None:
    """Its binary format has no ends of lines, other than word2vec.c's."""
    x, path = vectors(), tmp_path / ("g.bin" if binary else "g.txt")
    keyed = KeyedVectors(DIM)
    keyed.add_vectors([f"n{i}" for i in range(N)], x)
    keyed.save_word2vec_format(str(path), binary=binary)
    (found,) = nearest(path, ["n3"], 4)
    assert found.ids == [f"n{i}" for i in plain(x, 3, 4, "cosine")[0]]


WORDS = b"3 2\na 1 2\nb 3 4\nc 5 6\n"
FLOATS = np.arange(6, dtype="<f4")
BINARY = b"3 2\n" + b"".join(b"%c " % (97 + i) + FLOATS[2 * i : 2 * i + 2].tobytes() + b"\n" for i in range(3))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("g.txt", b"a 1 2\nb 3 4\n", r"does not begin as word2vec's files do"),
        ("g.txt", b"", r"does not begin as word2vec's files do"),
        ("g.txt", b"0 2\n", r"has no rows"),
        ("g.txt", b"3 0\na\nb\nc\n", r"has no columns"),
        ("g.txt", b"999999999999 2\na 1 2\n", r"is cut off or damaged: its first line says 999,999,999,999 vectors"),
        ("g.txt", b"3 2\naaaaaaaa 1 2\nb 30000 4\n", r"is cut off: its first line says 3 vectors, and 2 are there"),
        ("g.txt", WORDS + b"d 7 8\n", r"goes on after the 3 vectors"),
        ("g.txt", WORDS.replace(b"3 4", b"3 x"), r"\(row 1\): 'x' is no number"),
        ("g.txt", WORDS.replace(b"b 3", b"b 3 3"), r"\(row 1\): has 4 cells, 3 are needed: a word without blanks"),
        ("g.txt", WORDS.replace(b"b ", b"\xff "), r"\(row 1\): byte 0xFF"),
        ("g.txt", WORDS.replace(b"3 4", b"nan 4"), r"\(row 1\): holds nan"),
        ("g.txt", b"3 2\n" + b"a" * 70_000 + b" 1 2\n", r"\(row 0\): has more than 65,600 bytes"),
        ("g.txt", WORDS.replace(b"c", b"a"), r"\(row 2\): the id 'a' stands in row 0 already"),
        ("g.bin", BINARY[:-9], r"is cut off"),
        ("g.bin", BINARY + b"d", r"goes on after the 3 vectors"),
        ("g.bin", BINARY.replace(b"b ", b" "), r"is cut off|has no word before its numbers|row 1"),
        ("g.bin", b"1 2\n" + b"a" * 70_000 + b" " + bytes(8), r"\(row 0\): has a word of more than 65,536 bytes"),
        ("g.bin", BINARY.replace(b"c ", b"a "), r"\(row 2\): the id 'a' stands in row 0 already"),
        ("g.safetensors", b"x" * 40, r"is damaged or no file of safetensors"),
        ("g.vec", WORDS, r"ends with \.parquet or \.npy or \.safetensors or \.txt or \.bin"),
    ],
)
def test_damaged_words_are_refused(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name}.*{words}"):
        list(nearest(tmp_path / name, ["a"], 1))


def test_words_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_rows, "BLOCK_BYTES", 100)
    x = vectors()
    for format in ("word2vec", "word2vec-binary"):
        path = write(tmp_path, format, list(range(N)), x)
        parts = [(first, len(ids)) for first, ids, _ in VectorFile(path).chunks()]
        assert sum(count for _, count in parts) == N
        np.testing.assert_array_equal(np.concatenate([part for _, _, part in VectorFile(path).chunks()]), x)
    assert len(parts) > 1


def test_tensors_of_other_programs(tmp_path: Path) -> None:
    x, path = vectors(), tmp_path / "t.safetensors"
    pq.write_table(pa.table({"id": range(N)}), tmp_path / "t.ids.parquet")
    save_file({"weight": x.astype(np.float16)}, path)
    assert len(next(nearest(path, [3], 4)).ids) == 4
    for tensors, message in (
        ({"a": x, "b": x}, r"needs a tensor 'embedding' or one alone; it has a, b"),
        ({"a": np.arange(6)}, r"its tensor 'a' is of I64; vectors are of F16, F32, F64"),
        ({"a": x.ravel()}, r"not rows of numbers"),
    ):
        save_file(tensors, path)
        with pytest.raises(DataError, match=message):
            nearest(path, [3], 4)
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(DataError, match=r"is damaged or no file of safetensors"):
        nearest(path, [3], 4)


@pytest.mark.parametrize("kind", ENDINGS)
@pytest.mark.parametrize("ids", [[*range(N - 1), 17], [*(f"n{i}" for i in range(N - 1)), "n17"]])
def test_an_id_of_two_rows_is_refused_wherever_it_stands(tmp_path: Path, kind: str, ids: list[Any]) -> None:
    words = kind.startswith("word2vec")  # its writer refuses what stands twice
    other: Any = 991_717 if isinstance(ids[0], int) else "n991717"
    path = write(tmp_path, kind, [*ids[:-1], other] if words else ids, vectors())
    if words:
        path.write_bytes(path.read_bytes().replace(b"991717 ", b"17 "))
    with pytest.raises(
        DataError, match=r"\(row 299.*the id '?n?17'? stands in row 17 already.*leave one of the rows out"
    ):
        list(nearest(path, [ids[3]], 2))


def test_the_column_of_ids(tmp_path: Path) -> None:
    x, path = vectors(), tmp_path / "own.parquet"
    texts, numbers = [f"a{i % 7}" for i in range(N)], list(range(N))
    for name in ("id", "graph_id"):
        pq.write_table(pa.table({"label": texts, name: numbers, "x": column(x)}), path)
        assert next(nearest(path, [3], 4)).ids == plain(x, 3, 4, "cosine")[0]
    pq.write_table(pa.table({"label": texts, "node": numbers, "x": column(x)}), path)
    with pytest.raises(DataError, match=r"several columns that may be the ids, label, node; call the one that is `id`"):
        nearest(path, [3], 4)
    pq.write_table(pa.table({"label": texts, "id": x[:, 0], "x": column(x)}), path)
    with pytest.raises(
        DataError, match=r"\(column id\): needs a column of ids, texts or whole numbers; these are float"
    ):
        nearest(path, [3], 4)


@pytest.mark.parametrize("kind", ["parquet", "npy"])
def test_rows_without_an_id_and_files_without_a_row(tmp_path: Path, kind: str) -> None:
    x, path = vectors(), tmp_path / f"own.{kind}"
    for count, ids, words in (
        (N, pa.array([*range(70), None, *range(71, N)]), r"\(row 70, column id\): has no id"),
        (
            N,
            pa.array([*range(70), 2**63, *range(71, N)], pa.uint64()),
            r"\(row 70, .*the id 9223372036854775808 is more",
        ),
        (0, pa.array([], pa.int64()), r"has no rows: there is no vector"),
    ):
        np.save(tmp_path / "own.npy", x[:count])
        pq.write_table(pa.table({"id": ids}), tmp_path / "own.ids.parquet")
        pq.write_table(pa.table({"id": ids, "x": column(x[:count])}), tmp_path / "own.parquet")
        with pytest.raises(DataError, match=words):
            list(nearest(path, [3], 4))


def test_bytes_after_a_matrix_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "npy", list(range(N)), vectors())
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(DataError, match=r"vectors\.npy: goes on behind its array"):
        nearest(path, [3], 1)


def test_what_cannot_be_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, "npy", list(range(N)), vectors())
    for k in (-1, 0):
        with pytest.raises(RecipeError, match=rf"k={k}: ask for 1 neighbour or more"):
            nearest(path, [3], k)
    metric: Any = "cosin"
    with pytest.raises(RecipeError, match=r"metric='cosin'.*did you mean 'cosine'"):
        nearest(path, [3], 1, metric)
    for node in (2**63, -(2**70), True):
        with pytest.raises(DataError, match=rf"vectors\.npy: '{node}' is no id here"):
            nearest(path, [node], 1)
    with pytest.raises(DataError, match="an id that is asked for is missing"):
        nearest(path, pa.array([3, None]), 1)
