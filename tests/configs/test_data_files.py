"""`dataset=FILE`: which data set a file's name asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs.errors import DataError
from configs.load import load_recipe
from tasks.ingest.tables.files import TableFiles


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
