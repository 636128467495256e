"""Files of vectors, read by what reads them elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gensim.models import KeyedVectors
from safetensors.numpy import load_file

from configs.errors import DataError
from tasks.apply.vector_files.formats import ENDINGS, HAS_IDS_BESIDE, ids_path, refuse_other_ids
from tasks.apply.vector_files.reader import VectorFile
from tasks.apply.vector_files.writers import open_vectors
from tasks.storage.graph_store import Array

IDS: dict[str, pa.Array] = {
    "texts": pa.array(["anna", "Bożena-2", "</s>", "日本", "0"]),
    "numbers": pa.array([7, 0, -3, 2**53 + 1, 5]),
}


def vectors(rows: int = 5) -> Array:
    """Numbers that a careless text would lose: tiny, huge, with all their digits."""
    found = np.random.default_rng(0).normal(size=(rows, 3)).astype(np.float32)
    found[0] = [1e-38, -3.4e38, 0.1]
    return found


def write(path: Path, format: str, ids: pa.Array, numbers: Array) -> None:
    """In two parts, as an export writes them."""
    with open_vectors(path, format, len(numbers), numbers.shape[1]) as writer:
        for part in (slice(0, 2), slice(2, None)):
            writer.add({"id": ids[part]}, numbers[part])


def read(path: Path, format: str, column: str = "id") -> tuple[list[str], Array]:
    """Ids as texts, and vectors."""
    if format == "parquet":
        table = pq.read_table(path)
        return [str(each) for each in table[column].to_pylist()], np.array(table["embedding"].to_pylist(), np.float32)
    if format in HAS_IDS_BESIDE:
        numbers = np.load(path) if format == "npy" else load_file(path)["embedding"]
        return [str(each) for each in pq.read_table(ids_path(path))[column].to_pylist()], numbers
    found = KeyedVectors.load_word2vec_format(str(path), binary=format == "word2vec-binary")
    return list(found.index_to_key), found.vectors


@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("format", ENDINGS)
def test_every_format_brings_back_ids_and_numbers_to_the_bit(tmp_path: Path, format: str, kind: str) -> None:
    path, numbers = tmp_path / f"vectors{ENDINGS[format]}", vectors()
    write(path, format, IDS[kind], numbers)
    ids, found = read(path, format)
    assert ids == [str(each) for each in IDS[kind].to_pylist()]
    assert found.dtype == np.float32
    assert np.array_equal(found, numbers)


@pytest.mark.parametrize(
    "word", ["two words", "", " ", "a\tb", "line\nbreak", "\n", "end\r", "no-break\u00a0space", "\u2028"]
)
@pytest.mark.parametrize("format", ["word2vec", "word2vec-binary"])
def test_an_id_that_is_no_word(tmp_path: Path, format: str, word: str) -> None:
    ids = pa.array(["a", "b", "c", word, "e"])
    with pytest.raises(
        DataError,
        match=rf"the id {re.escape(repr(word))} is no word of word2vec's format.*write Parquet, npy or safetensors",
    ):
        write(tmp_path / "vectors", format, ids, vectors())


def test_ids_of_two_columns_are_no_words(tmp_path: Path) -> None:
    with (
        open_vectors(tmp_path / "vectors", "word2vec", 1, 3) as writer,
        pytest.raises(DataError, match=r"told apart by node_type and id.*write Parquet"),
    ):
        writer.add({"node_type": pa.array(["a"]), "id": pa.array([1])}, vectors(1))


@pytest.mark.parametrize("format", ["word2vec", "word2vec-binary"])
def test_odd_words_are_all_there(tmp_path: Path, format: str) -> None:
    """For gensim, and for `graphmill neighbors`."""
    words = [
        "\ufeffmark",
        '"quote',
        "a,b",
        "#",
        "-1e5",
        "nan",
        "a\0b",
        "\u200bzero",
        "'",
        "\\n",
        "x" * 60_000,
        "\U0001f600",
    ]
    path, numbers = tmp_path / f"vectors{ENDINGS[format]}", vectors(len(words))
    write(path, format, pa.array(words), numbers)
    keys, found = read(path, format)
    assert keys == words
    assert np.array_equal(found, numbers)
    chunks = list(VectorFile(path).chunks())
    assert [word for _, ids, _ in chunks for word in ids.to_pylist()] == words
    assert np.array_equal(np.concatenate([part for _, _, part in chunks]), numbers)


@pytest.mark.parametrize("format", ["word2vec", "word2vec-binary"])
@pytest.mark.parametrize("ids", [pa.array(["a", "b", "c", "a", "e"]), pa.array([1, 2, 3, 1, 5])])
def test_a_word_stands_once(tmp_path: Path, format: str, ids: pa.Array) -> None:
    """Else gensim leaves the second out; a file of `--nodes` may name a node twice."""
    with pytest.raises(DataError, match=r"the id '[a1]' is asked for twice, .*write Parquet, npy or safetensors"):
        write(tmp_path / "vectors", format, ids, vectors())


def test_ids_of_another_matrix_are_not_replaced(tmp_path: Path) -> None:
    work, output = tmp_path / "work", tmp_path / "v.safetensors"
    work.mkdir()
    refuse_other_ids(work, output)  # Parquet and words have none beside them
    (work / "embeddings.ids.parquet").write_bytes(b"new")
    (tmp_path / "v.ids.parquet").write_bytes(b"old")
    refuse_other_ids(work, output)  # there is no other matrix
    (tmp_path / "v.npy").touch()
    with pytest.raises(DataError, match=r"v\.ids\.parquet holds the ids of v\.npy, which differ"):
        refuse_other_ids(work, output)
    refuse_other_ids(work, tmp_path / "v.npy")  # its own
    (work / "embeddings.ids.parquet").write_bytes(b"old")
    refuse_other_ids(work, output)
