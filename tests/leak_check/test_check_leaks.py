"""The check finds leaks that were planted, and nothing in clean recipes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from configs.errors import DataError, RecipeError
from configs.load import build_recipe, load_recipe
from configs.registry import DATASETS
from configs.schema import Recipe
from tasks.calls import load_stage
from tasks.leak_check.check import LeakCheck, check_leaks
from tasks.leak_check.inputs import differences
from tasks.leak_check.telling_columns import telling_columns
from tasks.preprocess import build
from tasks.sampling.relational.batches import SeedMoments, TypedNeighborhoods
from tasks.sampling.relational.links import RankedLinks
from tasks.stage import run_stage
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.home_files.temporary import PREFIX
from tests.ingest.test_relbench import write_formula

SIZES = ["dataset.num_customers=500", "dataset.num_products=60", "dataset.reviews_a_quarter=400"]
DAY = 86_400


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home.open(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def shop() -> Recipe:
    return load_recipe("shop", SIZES)


def test_the_shop_is_clean(home: Home, shop: Recipe) -> None:
    found = check_leaks(shop, home, 40)
    assert found.ok, found
    assert (len(found.moments), found.seeds, found.unit) == (2, 80, "seconds")
    assert found.timeless == ["products"]
    assert not list(home.work.glob(f"{PREFIX}*"))


def test_edges_from_the_future_are_found(home: Home, shop: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    cuts = SeedMoments.cuts
    monkeypatch.setattr(SeedMoments, "cuts", lambda self, seeds: cuts(self, seeds) + 30 * DAY)
    found = check_leaks(shop, home, 40)
    assert not found.ok
    # Rows of the 30 days after the moment, seen by seeds of the moment, and by those up to 30 days before it.
    assert found.changed["which rows of reviews are there"] >= 40 or found.changed["categories of reviews"] >= 40


def test_one_second_of_the_future_is_found(home: Home, shop: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens at the very moment belongs to the future: tasks' own edges have that time."""
    data = run_stage(load_stage("ingest"), shop, {}, home).parent
    orders = DatasetStore(data.folder, data.manifest).column("nodes/reviews", "time")
    cuts = SeedMoments.cuts
    last = int(orders.max())
    monkeypatch.setattr(SeedMoments, "cuts", lambda self, seeds: np.minimum(cuts(self, seeds) + 365 * DAY, last + 1))
    assert check_leaks(shop, home, 10).changed


def test_a_transform_that_is_fitted_on_all_rows_is_found(
    shop: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build.rows, "training_rows", lambda _, graph: np.arange(graph.num_nodes))
    found = check_leaks(shop, Home.open(tmp_path), 20)
    # All seeds as of the first moment; nobody joins behind the second.
    assert found.changed["numbers of customers"] == 20, found
    assert not any(name.startswith("which rows") for name in found.changed)


TELLING = {
    "side": "column closings.why tells the label by itself (rocauc 1.0000)",
    "rows": "whether there is a row of closings__who__people tells the label by itself (rocauc 1.0000)",
    "later": None,
    "named": "column places.kind tells the label by itself (rocauc 1.0000)",
    "status": "column people.status tells the label by itself (rocauc 1.0000)",
    "gaps": "column people.fee_missing tells the label by itself (rocauc 1.0000)",
    None: None,
}


def labelled(folder: Path, tells: str | None) -> Recipe:
    """A database of people, some of whom left; a column tells that, or where it is empty."""
    random = np.random.default_rng(0)
    count = 400
    left = random.random(count) < 0.3
    tables = {
        "people": {
            "person": np.arange(count),
            "since": np.full(count, 0),
            "age": random.normal(size=count),
            "status": np.where(left, "closed", "open")
            if tells == "status"
            else random.choice(["closed", "open"], count),
            "fee": np.where(left if tells == "gaps" else random.random(count) < 0.3, random.random(count), np.nan),
        },
        "visits": {"visit": np.arange(900), "who": random.integers(count, size=900), "day": 1 + np.arange(900) % 90},
        "left": {"person": np.arange(count), "at": 100 + 10 * (np.arange(count) % 4), "left": left.astype(np.int64)},
    }
    more: dict[str, Any] = {}
    if tells in ("side", "rows", "later"):
        who = np.flatnonzero(left | (tells != "rows"))
        tables["closings"] = {"who": who, "why": np.where(left, "moved", "none")[who], "day": np.full(len(who), 200)}
        more["closings"] = {"foreign": {"who": "people"}, "columns": {} if tells == "later" else {"day": "ignore"}}
        more["closings"] |= {"time": "day"} if tells == "later" else {}
    if tells == "named":
        tables["people"]["place"] = random.permutation(count)
        kind = np.empty(count, np.int64)
        kind[tables["people"]["place"]] = left
        tables["places"] = {"place": np.arange(count), "kind": kind}
        more["places"] = {"key": "place"}
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    people = {"foreign": {"place": "places"}} if tells == "named" else {}
    section: dict[str, Any] = {
        "name": "database",
        "tables": {
            "people": {"files": str(folder / "people.parquet"), "key": "person", "time": "since", **people},
            "visits": {
                "files": str(folder / "visits.parquet"),
                "key": "visit",
                "time": "day",
                "foreign": {"who": "people"},
            },
            **{name: {"files": str(folder / f"{name}.parquet"), **options} for name, options in more.items()},
        },
        "predict": {
            "table": "people",
            "labels": {
                "files": str(folder / "left.parquet"),
                "key": "person",
                "time": "at",
                "label": "left",
                "task_type": "binary",
            },
            "horizon": "5",
        },
    }
    return build_recipe(
        {
            "name": "people",
            "dataset": section,
            "model": {"name": "heterosage", "num_layers": 2},
            "train": {"loader": {"name": "relational"}},
        }
    )


QUICK = ("status", "side", "later", None)


@pytest.mark.parametrize(
    "tells", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in TELLING]
)
def test_a_label_in_a_column_is_found(tmp_path: Path, tells: str | None) -> None:
    found = check_leaks(labelled(tmp_path, tells), Home.open(tmp_path / "home"), 20)
    assert found.columns == ([TELLING[tells]] if TELLING[tells] else [])
    assert found.changed == {}
    assert (found.moments, found.unit) == ([120, 130], "number")


def interactions(folder: Path) -> Recipe:
    """Payments of people at places, several in a second; each is predicted as of its own time."""
    random = np.random.default_rng(1)
    count = 600
    day = np.sort(random.integers(0, 60, count))
    tables = {
        "people": {"person": np.arange(40), "since": random.integers(-5, 60, 40)},
        "places": {"place": np.arange(7), "size": random.normal(size=7)},
        "payments": {
            "who": random.integers(40, size=count),
            "where": random.integers(7, size=count),
            "day": day,
            "amount": random.normal(size=count),
            "fraud": random.integers(2, size=count),
        },
    }
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    files = {name: str(folder / f"{name}.parquet") for name in tables}
    section = {
        "name": "database",
        "tables": {
            "people": {"files": files["people"], "key": "person", "time": "since"},
            "places": {"files": files["places"], "key": "place"},
            "payments": {"files": files["payments"], "time": "day", "foreign": {"who": "people", "where": "places"}},
        },
        "predict": {"table": "payments", "label": "fraud"},
    }
    model = {"name": "heterosage", "num_layers": 2}
    train = {"loader": {"name": "relational", "fanout": [5, 5], "choose": "uniform"}}
    return build_recipe({"name": "payments", "dataset": section, "model": model, "train": train})


def test_interactions_are_clean_and_see_what_they_name(tmp_path: Path) -> None:
    found = check_leaks(interactions(tmp_path), Home.open(tmp_path / "home"), 40)
    assert found.ok, found
    assert (found.seeds, len(found.moments)) == (80, 2)


def test_interactions_of_the_same_moment_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut one later shows the rest of the day's payments of the same people and places."""
    cuts = SeedMoments.cuts
    monkeypatch.setattr(SeedMoments, "cuts", lambda self, seeds: cuts(self, seeds) + 1)
    found = check_leaks(interactions(tmp_path), Home.open(tmp_path / "home"), 40)
    assert any("payments" in name for name in found.changed), found


def test_a_label_that_is_a_feature_too_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks.ingest.database import ingest

    chosen = ingest.feature_candidates
    monkeypatch.setattr(ingest, "feature_candidates", lambda table: [*chosen(table), *table.labels])
    found = check_leaks(interactions(tmp_path), Home.open(tmp_path / "home"), 20)
    assert found.columns == ["column payments.fraud tells the label by itself (rocauc 1.0000)"]


@pytest.mark.parametrize("time", ["day", None])
def test_what_a_row_names_at_its_own_time_tells_of_it(tmp_path: Path, time: str | None) -> None:
    """A payment that is fraud names a case: a row sees what it names, also what came to be with it, or has no time."""
    recipe = interactions(tmp_path)
    payments = pq.read_table(tmp_path / "payments.parquet")
    fraud = payments["fraud"].to_numpy()
    case = pa.array(np.arange(len(fraud)), mask=fraud == 0)
    pq.write_table(payments.append_column("case", case), tmp_path / "payments.parquet")
    cases = {"case": np.arange(len(fraud)), "day": payments["day"], "size": np.random.default_rng(0).random(len(fraud))}
    pq.write_table(pa.table(cases), tmp_path / "cases.parquet")
    section = recipe.dataset.model_dump(mode="json")
    section["tables"]["cases"] = {"files": str(tmp_path / "cases.parquet"), "key": "case", "time": time}
    section["tables"]["cases"]["columns"] = {"day": "ignore"} if time is None else {}
    section["tables"]["payments"]["foreign"]["case"] = "cases"
    recipe = recipe.model_copy(update={"dataset": DATASETS.config(section)})
    home = Home.open(tmp_path / "home")
    data = run_stage(load_stage("ingest"), recipe, {}, home).parent
    graph = run_stage(load_stage("preprocess"), recipe, {"ingest": data}, home).parent
    found = telling_columns(GraphStore(graph.folder, graph.manifest), DatasetStore(data.folder, data.manifest))
    assert found == ["whether there is a row of payments__case__cases tells the label by itself (rocauc 1.0000)"]


def test_a_model_that_reads_labels_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed's own label as its age, say: labels of all rows change, those of earlier ones too."""
    inputs, opened = TypedNeighborhoods._inputs, TypedNeighborhoods.__init__

    def opening(self: Any, store: Any, *args: Any, **options: Any) -> None:
        opened(self, store, *args, **options)
        self.label = np.asarray(store["label"], np.float32)

    def reading(self: Any, t: int, nodes: Any, cut: Any) -> Any:
        found = inputs(self, t, nodes, cut)
        if t == self.facts.label_type:
            found.age = torch.from_numpy(self.label[nodes].reshape(-1))
        return found

    monkeypatch.setattr(TypedNeighborhoods, "__init__", opening)
    monkeypatch.setattr(TypedNeighborhoods, "_inputs", reading)
    found = check_leaks(interactions(tmp_path), Home.open(tmp_path / "home"), 20)
    assert set(found.changed) == {"ages of payments"}


def test_a_task_of_relbench_is_clean(tmp_path: Path) -> None:
    dataset = {"name": "relbench", "folder": str(write_formula(tmp_path)), "predict": "driver-dnf"}
    model = {"name": "heterosage", "num_layers": 2}
    recipe = build_recipe({"name": "f1", "dataset": dataset, "model": model, "train": {"loader": "relational"}})
    found = check_leaks(recipe, Home.open(tmp_path / "home"), 8)
    assert (found.changed, found.seeds, found.timeless) == ({}, 16, ["drivers"])


def test_other_data_sets_and_models_are_refused(home: Home) -> None:
    with pytest.raises(RecipeError, match="predicts nothing at moments"):
        check_leaks(load_recipe("quickstart", ["dataset.num_nodes=500", "dataset.num_edges=2000"]), home, 5)


def test_bits_count_and_rows_that_are_gone_hide_what_they_carried() -> None:
    rows, nan = "which rows of a are there", np.array([np.nan, 1.0], np.float32)
    before = {rows: np.arange(2), "numbers of a": nan, "numbers of b": nan}
    assert differences(before, {rows: np.arange(2), "numbers of a": nan.copy(), "numbers of b": nan.copy()}) == []
    assert differences(before, {rows: np.arange(2), "numbers of a": nan, "numbers of b": -nan}) == ["numbers of b"]
    assert differences(before, {rows: np.arange(3), "numbers of a": -nan, "numbers of b": nan}) == [rows]


def test_a_run_that_checks_ends_where_something_leaks(
    home: Home, shop: Recipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from flows.commands.recipes.leaks import refuse_leaks

    refuse_leaks(home, shop, 4, quiet=True)
    refuse_leaks(home, load_recipe("quickstart", ["dataset.num_nodes=500", "dataset.num_edges=2000"]), 4, quiet=True)
    seen = capsys.readouterr()
    assert seen.out == ""
    assert "predicts nothing at moments" in seen.err
    cuts = SeedMoments.cuts
    monkeypatch.setattr(SeedMoments, "cuts", lambda self, seeds: cuts(self, seeds) + 90 * DAY)
    with pytest.raises(
        DataError,
        match=r"which rows of .* are there \(4 of 8 seeds\).* and \d+ more; nothing was run; graphmill check-leaks",
    ):
        refuse_leaks(home, shop, 4, quiet=True)


def test_the_command(home: Home, shop: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    from flows.commands.recipes.leaks import find_leaks, show_leaks

    assert find_leaks(home, shop, 4, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["seeds"]) == (True, 8)
    show_leaks(LeakCheck("seconds", [DAY], 7, {"numbers of a": 3}, ["column x tells the label by itself (r)"], ["b"]))
    found = capsys.readouterr()
    assert "from 1970-01-02 on" in found.out
    assert "b: no time" in found.out
    assert "leak     numbers of a: not the same for 3 of 7 seeds" in found.err
    assert "leak     column x tells the label by itself (r): is it the label" in found.err


RECOMMEND = [
    *("dataset.num_customers=400", "dataset.num_products=40", "dataset.reviews_a_quarter=200"),
    *("dataset.predict=products", "dataset.styles=4"),
]


@pytest.mark.slow
def test_recommendations_are_clean(home: Home) -> None:
    found = check_leaks(load_recipe("shop", RECOMMEND), home, 20)
    assert found.ok, found
    assert found.seeds == 39  # of 40; who has no rows in the changed horizon is no seed any more


@pytest.mark.parametrize(
    ("leak", "finds"),
    [
        ("batch", "which rows of orders are there"),
        ("popularity", "popularity of candidates"),
        ("past", "what the entity was linked to before"),
    ],
)
def test_what_recommendations_see_of_the_future_is_found(
    home: Home, monkeypatch: pytest.MonkeyPatch, leak: str, finds: str
) -> None:
    """Each of what scores are made of: both neighbourhoods, popularity, and the entity's own past."""
    if leak == "batch":
        around = TypedNeighborhoods.around
        monkeypatch.setattr(
            TypedNeighborhoods, "around", lambda self, nodes, cuts, key: around(self, nodes, cuts + 30 * DAY, key)
        )
    elif leak == "popularity":
        counted = RankedLinks.popularity
        monkeypatch.setattr(
            RankedLinks, "popularity", lambda self, columns, moment: counted(self, columns, moment + 30 * DAY)
        )
    else:
        past = RankedLinks.past
        monkeypatch.setattr(RankedLinks, "past", lambda self, who, moments: past(self, who, moments + 30 * DAY))
    found = check_leaks(load_recipe("shop", RECOMMEND), home, 20)
    assert found.changed.get(finds, 0) > 0, found.changed
