"""Whether the first line of a table names its columns: found out for `dataset=FILE`, and said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from configs.errors import DataError, RecipeError
from configs.load import build_recipe, edge_list
from configs.registry import DATASETS
from tests.ingest.conftest import Ingest

NUM = 40
SPLIT = {"train": 0.4, "valid": 0.3, "test": 0.3}
NUMBERS = [f"{a},{(a + step) % NUM}" for a in range(NUM) for step in (1, 2)]
TEXTS = [f"u{a},sku/{(a + step) % NUM}" for a in range(NUM) for step in (1, 2)]


def lines(rows: list[str], *, more: str = "", sep: str = ",") -> list[str]:
    """Rows with a further column: `{i}` in it is the row's number."""
    ending = f"{sep}{more}" if more else ""
    return [row.replace(",", sep) + ending.replace("{i}", str(i)) for i, row in enumerate(rows)]


# The file's name, its lines, whether the first one is names, what is said.
FILES: dict[str, tuple[str, list[str], bool, str]] = {
    "numbers": ("e.csv", NUMBERS, False, "e.csv: the first line, '0,1', looks like data"),
    "numbers, tabs": ("e.tsv", lines(NUMBERS[5:], sep="\t"), False, "looks like data, and is read as data"),
    "texts that come again": ("e.csv", TEXTS, False, "'u0,sku/1', looks like data, and is read as data; if it names"),
    "a number that does not": ("e.csv", lines(TEXTS, more="0.{i}"), False, "dataset.edges.header=true"),
    "a date that does not": ("e.csv", lines(["x,y", *TEXTS], more="2020-01-01 00:00:{i}"), False, "looks like data"),
    "usual names": ("e.csv", ["src,dst", *TEXTS], True, ""),
    "names over numbers": ("e.csv", ["alpha,beta", *NUMBERS], True, ""),
    "names over texts": ("e.csv", ["gene,disease", *TEXTS], True, ""),
    "a year over numbers": ("e.csv", ["gene,2019", *NUMBERS], True, ""),
    "texts that do not come again": ("e.csv", ["x1,y1", *TEXTS], True, ""),
}


@pytest.mark.parametrize("case", FILES)
def test_whether_the_first_line_is_names(ingest: Ingest, folder: Path, case: str) -> None:
    name, rows, names, said = FILES[case]
    Path(name).write_text("\n".join(rows) + "\n")
    store, notes = told(ingest, edge_list(name) | {"split": SPLIT})
    assert num_edges(store) == len(rows) - names
    assert said in "\n".join(notes)
    assert bool(notes) == bool(said)


def told(ingest: Ingest, section: dict[str, Any]) -> tuple[Any, list[str]]:
    """Ingest; return the store and what was said."""
    from tasks.ingest.graph_tables.ingest import with_headers_found
    from tasks.ingest.tables.intake import Intake

    intake, store = Intake(), ingest(**section)
    with_headers_found(DATASETS.config(section), intake)  # type: ignore[arg-type]
    assert [hint for hint in intake.hints if hint not in store.manifest.warnings] == []
    return store, intake.hints + intake.notes


def num_edges(store: Any) -> int:
    return sum(store.manifest.splits.values())


def test_an_override_decides(ingest: Ingest, folder: Path) -> None:
    Path("e.csv").write_text("\n".join(NUMBERS) + "\n")
    base = {"name": "x", "model": "skipgram", "dataset": "synthetic"}
    for header in (True, False):
        recipe = build_recipe(dict(base), ["dataset=e.csv", f"dataset.edges.header={str(header).lower()}"])
        assert recipe.dataset.edges[0].header is header  # type: ignore[attr-defined]
    assert build_recipe(dict(base), ["dataset=e.csv"]).dataset.edges[0].header == "auto"  # type: ignore[attr-defined]
    with pytest.raises(RecipeError, match=r"header: 'perhaps' is none of true, false and auto"):
        build_recipe(dict(base), ["dataset=e.csv", "dataset.edges.header=perhaps"])


def test_what_cannot_be_read_is_said_by_the_reader(ingest: Ingest, folder: Path) -> None:
    Path("e.csv").write_text("1,2\n3\n")
    with pytest.raises(DataError, match=r"e\.csv"):
        ingest(**edge_list("e.csv"))


@pytest.mark.parametrize("name", ["e.csv", "e.tsv", "e.txt"])
def test_zeros_in_front_of_ids(ingest: Ingest, folder: Path, name: str) -> None:
    """They are numbers, and `07` is 7: that is said."""
    sep = "," if name == "e.csv" else "\t"
    Path(name).write_text("\n".join(f"{a:02}{sep}{(a + 1) % NUM}" for a in range(NUM)) + "\n")
    section = edge_list(name) | {"split": SPLIT}
    words = f"{name}: the id 00 is read as the number 0, and 0 is the same id; dataset.text_ids=true tells them apart"
    assert words in ingest(**section).manifest.warnings
    texts = ingest(**section, text_ids=True)
    assert not any("is read as the number" in text for text in texts.manifest.warnings)
    assert texts.manifest.num_nodes == NUM + 10
