"""Values of recipes: sizes, files in the place of a data set; errors that a worker tells its parent of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from configs import errors
from configs.errors import DataError, GraphmillError, RecipeError, StageError, UntrustedCodeError, error_of, kind_of
from configs.load import build_recipe, load_recipe
from configs.values.sizes import number_of_bytes
from tasks.ingest.tables.files import TableFiles


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500MB", 5e8),
        ("1.5 GiB", 1.5 * 2**30),
        ("2e9", 2e9),
        ("64k", 64e3),
        ("7", 7),
        (" 3 tb ", 3e12),
        (12, 12),
        (None, None),
    ],
)
def test_sizes(text: Any, size: Any) -> None:
    assert number_of_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MB", "5 megabytes", "-3MB", "1,000", "nan", "1e", "3 MBit"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="give bytes, or a unit as in 500MB"):
        number_of_bytes(text)


def test_a_recipe_takes_them() -> None:
    def recipe(memory: Any) -> Any:
        train = {"strategy": {"name": "block_grid", "memory": memory}}
        return build_recipe({"name": "x", "dataset": "synthetic", "model": "skipgram", "train": train}).train

    assert recipe("500MB").strategy.memory == recipe(5e8).strategy.memory == 5e8
    with pytest.raises(RecipeError, match=r"train\.strategy\.memory"):
        recipe("lots")


@pytest.mark.parametrize(
    ("recipe", "file", "name", "option"),
    [
        ("prone", "x.npz", "npz", "path"),
        ("line", "a/x.MAT", "mat", "path"),
        ("quickstart", "x.pt", "pyg", "path"),
        ("quickstart", "x.bin", "dgl", "path"),
        ("knowledge-graph", "x.nt", "triples", "triples"),
        ("largevis", "x.npz", "vectors", "files"),
    ],
)
def test_the_ending_names_the_data_set(recipe: str, file: str, name: str, option: str) -> None:
    dataset = load_recipe(recipe, [f"dataset={file}"]).dataset
    given = getattr(dataset, option)
    assert (dataset.name, given if isinstance(given, str) else given[0]) == (name, file)


def test_a_file_that_is_no_table_names_its_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for file, words in {"x.npz": "{name: npz, path: x.npz}", "g.pt": "{name: pyg, path: g.pt}"}.items():
        Path(file).touch()
        with pytest.raises(DataError, match=f"is no table, but a file of the data set .*{words}"):
            TableFiles((file,), "auto", True, None, ()).column_names()
    Path("x.json").touch()
    with pytest.raises(DataError, match=r"x\.json: the name does not tell the format; known: \.parquet"):
        TableFiles(("x.json",), "auto", True, None, ()).column_names()


class OwnDataError(DataError):
    """As packages have some."""


@pytest.mark.parametrize("error", [DataError("x"), StageError("x"), UntrustedCodeError("x"), OwnDataError("x")])
def test_an_error_keeps_its_class_and_its_words(error: GraphmillError) -> None:
    again = error_of(kind_of(error), str(error))
    assert type(again) is (DataError if isinstance(error, OwnDataError) else type(error))
    assert str(again) == "x"


@pytest.mark.parametrize("kind", ["nonsense", "readable", "annotations", "_MAX_PATH_CHARS", "__name__"])
def test_a_word_that_names_no_error_of_ours_is_a_stage_s(kind: str) -> None:
    assert not kind.startswith("_") or hasattr(errors, kind)
    assert type(error_of(kind, "x")) is StageError
