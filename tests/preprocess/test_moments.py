"""What is predicted at moments: nothing that is fitted looks behind the first moment that validates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.load import build_recipe
from tasks.ingest.stage import STAGE as INGEST
from tasks.preprocess.stage import STAGE
from tasks.stage import run_stage
from tasks.storage.graph_store import ALWAYS, GraphStore
from tasks.storage.home import Home
from tasks.storage.manifests import array_of_type, is_of_type
from tests.ingest.small_databases import ROWS, database, write


@pytest.fixture
def graph(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns the graph of the small database with some cells changed."""
    monkeypatch.chdir(tmp_path)

    def made(
        transforms: tuple[str, ...] = ("standardize",), section: dict[str, Any] | None = None, **changes: dict[str, Any]
    ) -> GraphStore:
        write(tmp_path, **changes)
        options = {"deduplicate": False, "workers": 1, "transforms": list(transforms)}
        recipe = build_recipe(
            {"name": "x", "dataset": section or database(), "preprocess": options, "model": "heterosage"}
        )
        ingested = run_stage(INGEST, recipe, {}, home)
        found = run_stage(STAGE, recipe, {"ingest": ingested.parent}, home)
        return GraphStore(found.folder, found.manifest)

    return made


def column(store: GraphStore, kind: str, place: int = 0) -> np.ndarray:
    """Return a numeric column of a type's nodes."""
    return np.asarray(store[array_of_type("feat", kind)][:, place])


def codes(store: GraphStore, kind: str) -> list[int]:
    return np.asarray(store[array_of_type("feat_cat", kind)][:, 0]).tolist()


def test_transforms_and_fills_are_fitted_on_older_rows(graph: Any) -> None:
    store = graph()
    assert store.manifest.fit_before == 1_664_582_400  # 2022-10-01
    paid = np.array(ROWS["buys"]["paid"])
    older = np.array([day < "2022-10-01" for day in ROWS["buys"]["day"]])
    expected = (paid - paid[older].mean()) / paid[older].std()
    np.testing.assert_allclose(column(store, "buys"), expected, rtol=1e-6)
    age = np.array([31, (31 + 25) / 2, 25, 40])  # the fourth came later: it is no part of the mean
    np.testing.assert_allclose(column(store, "people"), (age - 28) / age[:3].std(), rtol=1e-6)
    price = np.array(ROWS["things"]["price"])  # things were always there
    np.testing.assert_allclose(column(store, "things"), (price - price.mean()) / price.std(), rtol=1e-6)


def test_categories_are_numbered_by_older_rows(graph: Any) -> None:
    found = codes(graph(), "people")  # de, fr, de, it: the last came later
    assert found[0] == found[2]
    assert sorted({found[0], found[1]}) == [0, 1]
    assert found[3] == 2
    assert graph().manifest.categories[0] == 4  # two, the unknown, and what other types have


@pytest.mark.parametrize("transforms", [(), ("standardize",), ("min_max",), ("log1p",)])
def test_what_comes_later_changes_no_older_row(graph: Any, transforms: tuple[str, ...]) -> None:
    """Cells of rows that are not older than the first moment that validates change: older rows stay, to the bit."""
    one = graph(transforms)
    changed = {"paid": [*ROWS["buys"]["paid"][:3], 900.0, 1e6, -5.0, 77.0, 0.001]}
    other = graph(transforms, buys=changed, people={"age": [31.0, None, 25.0, 99.0], "land": ["de", "fr", "de", "zz"]})
    old = np.asarray(one["node_time"]) < one.manifest.fit_before
    types, starts = one.manifest.node_types, one.manifest.type_offsets
    names = [name for name in one.manifest.arrays if is_of_type(name)]
    assert set(names) == {f"feat of {kind}" for kind in ("people", "buys", "things")} | {
        f"feat_cat of {kind}" for kind in ("people", "things")
    }
    assert "feat" not in one
    assert not np.array_equal(one["feat of buys"], other["feat of buys"])
    for name in names:
        place = types.index(name.rpartition(" ")[2])
        some = old[starts[place] : (*starts, len(old))[place + 1]]
        np.testing.assert_array_equal(one[name][some], other[name][some])


@pytest.mark.parametrize(
    ("transforms", "largest", "told"),
    [((), 4900.0, True), ((), -4900.0, True), ((), 90.0, False), (("standardize",), 4900.0, False)],
)
def test_large_numbers_that_nothing_scales_are_told(
    graph: Any, transforms: tuple[str, ...], largest: float, told: bool
) -> None:
    warnings = graph(transforms, buys={"paid": [1.0, 2.0, largest, 4.0, 5.0, 6.0, 7.0, 8.0]}).manifest.warnings
    found = [text for text in warnings if text.startswith("large numbers reach the model unscaled")]
    assert bool(found) == told
    if told:
        assert "buys.paid (up to 4,900); " in found[0]
        assert "preprocess.transforms: [{name: standardize}]" in found[0]


def test_a_type_of_later_rows_only_is_fitted_on_nothing(graph: Any) -> None:
    days = [f"2023-0{1 + i}-01" for i in range(8)]
    later = {"day": [*days[:7], "2023-12-31"]}
    assert "feat of buys" not in graph(buys=later)  # nor does any row say what a column is
    pinned = database(buys={"columns": {"paid": "number"}})
    for transforms in (("min_max",), ("standardize",)):
        store = graph(transforms, pinned, buys=later)
        assert np.isfinite(column(store, "buys")).all()


def test_what_has_no_time_was_always_there(graph: Any) -> None:
    amount = [1.25, 1000.0, 0.5, 3.0, -7.5, 1.75, 2.0, 0.0, 9.0]
    store = graph(lines={"amount": amount})
    types, offsets = store.manifest.node_types, store.manifest.type_offsets
    first, last = (offsets[types.index("things") + i] for i in (0, 1))
    assert (np.asarray(store["node_time"][first:last]) == ALWAYS).all()
    time, kind = np.asarray(store["edge_time"]), np.asarray(store["edge_type"])
    lines = store.manifest.edge_types.index("buys__lines__things")
    assert (time[kind == lines] > 0).all()  # an edge has its ends' times
    place = store.manifest.relation_columns["buys__lines__things"].numeric[1]  # behind `number`
    found = np.asarray(store["edge_feat"])[kind == lines, place]
    np.testing.assert_allclose(np.sort(found), np.sort(np.sign(amount) * np.log1p(np.abs(amount))), rtol=1e-6)


def test_who_answers_to_a_row_is_not_whom_it_answers_to(graph: Any) -> None:
    """A key to the own table makes two relations, and each edge is in the one of its direction."""
    store = graph(people={"boss": [12, 10, 10, 12]})  # 0 and 2 name each other
    names = store.manifest.edge_types
    indptr, source, kind = (np.asarray(store[name]) for name in ("csc_indptr", "csc_indices", "edge_type"))
    target = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    found = {}
    for name in ("people__boss__people", "people__rev_boss__people"):
        mine = kind == names.index(name)
        found[name] = sorted(zip(source[mine].tolist(), target[mine].tolist(), strict=True))
    assert found["people__boss__people"] == [(0, 2), (1, 0), (2, 0), (3, 2)]
    assert found["people__rev_boss__people"] == [(0, 1), (0, 2), (2, 0), (2, 3)]
    people = store.manifest.node_types.index("people")
    assert store.manifest.relation_ends[names.index("people__rev_boss__people")] == (people, people)


def test_texts_are_learned_from_older_rows(graph: Any) -> None:
    """Of rows of tables and of a table of links: texts of later rows change no older row, to the bit."""
    notes = ["red hat", "blue hat", "red coat", "hat hat", "zzz", "", "red", "hat"]
    tags = ["big", "small big", "big", "small", "x", "", "big", "small", "big"]
    section = database(buys={"columns": {"note": "text"}}, lines={"columns": {"tag": "text"}})
    one = graph((), section, buys={"note": notes}, lines={"tag": tags})
    later = {"note": [*notes[:3], "red red", "quite", "other", "texts", "here"]}
    other = graph((), section, buys=later, lines={"tag": [*tags[:4], "new", "words", "only", "from", "here"]})
    first, last = one.manifest.report["texts"]["buys.note"]
    assert other.manifest.report["texts"] == {"buys.note": [first, last]}
    place = list(one.manifest.type_columns["buys"].numeric).index(first)
    texts = [np.asarray(each[array_of_type("feat", "buys")])[:, place : place + last - first] for each in (one, other)]
    np.testing.assert_array_equal(texts[0][:3], texts[1][:3])
    assert texts[0][:3].any()
    assert not texts[0][5].any()
    for each in (one, other):
        assert np.isfinite(each["edge_feat"]).all()
    old = np.asarray(one["edge_time"]) < one.manifest.fit_before
    np.testing.assert_array_equal(one["csc_indices"], other["csc_indices"])
    np.testing.assert_array_equal(one["edge_feat"][old], other["edge_feat"][old])
    assert one["edge_feat"][old].any()
    assert (one["edge_feat"][~old] != other["edge_feat"][~old]).any()
