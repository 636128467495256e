"""What is published of a model's data, and how far other data is from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from configs.schema import Recipe
from tasks.publish import profile
from tasks.publish.champion import trained
from tasks.publish.champion.trained import FACTS, HASHES, row_hashes, row_names, trained_on, write_trained
from tasks.stage import Parent
from tasks.storage.home import Home
from tests.apply.test_needs import N, recipe_of, write_tables
from tests.publish.line import Line, customers, write_customers


def told(features: dict[str, Any], nodes: int = 100) -> dict[str, Any]:
    """A profile with these features."""
    return {
        "nodes": nodes,
        "edges": 400,
        "splits": {"valid": 10},
        "degrees": {"log2_bins": [10, 90]},
        "labels": None,
        "classes": None,
        "metrics": {},
        "features": features,
    }


def numbers(values: Any) -> dict[str, Any]:
    return profile._described(np.asarray(values, np.float32), False, None)


def test_drift_of_features_follows_its_formulas() -> None:
    rng = np.random.default_rng(0)
    old, new = rng.standard_normal(5000), rng.standard_normal(5000) + 1
    same = profile.compare(told({"a": numbers(old)}), told({"a": numbers(old)}))["drift"]["features"]["a"]
    assert same["psi"] == pytest.approx(0, abs=1e-6)
    moved = profile.compare(told({"a": numbers(old)}), told({"a": numbers(new)}))["drift"]["features"]["a"]
    edges = np.quantile(old, np.arange(0.1, 0.95, 0.1))
    shares = [np.bincount(np.searchsorted(edges, values), minlength=10) / 5000 for values in (old, new)]
    assert moved["psi"] == pytest.approx(((shares[1] - shares[0]) * np.log(shares[1] / shares[0])).sum(), rel=0.05)
    assert moved["mean"] == pytest.approx([old.mean(), new.mean()], abs=1e-5)


def test_drift_of_categories_goes_by_names() -> None:
    def shares(codes: list[int], names: list[str]) -> dict[str, Any]:
        return profile._described(np.array(codes, np.int32), True, names)

    before, now = shares([0, 0, 1, 1], ["red", "blue"]), shares([0, 0, 1, 2], ["blue", "red", "grey"])
    found = profile.compare(told({"c": before}), told({"c": now}))["drift"]["features"]["c"]
    assert found["tvd"] == pytest.approx(0.25)
    unlike = profile.compare(told({"c": before}), told({"c": numbers([1.0]), "d": numbers([1.0])}))
    assert unlike["drift"]["features"] == {}, "a column that is new, or of another kind, has nothing to compare with"


def test_it_is_said_in_rows_and_in_a_line() -> None:
    features = {f"node/x[{i}]": numbers(np.arange(100.0)) for i in range(8)}
    after = features | {"node/x[3]": numbers(np.arange(100.0) + 500)}
    found = profile.compare(told(features), told(after, nodes=150))
    rows = dict(profile.facts(found))
    assert rows["nodes"] == "150, +50.0 % (was 100)"
    assert "another population" in rows["drift of node/x[3]"]
    assert rows["drift of node/x[3]"].endswith("mean 49.5 -> 549.5")
    assert rows["other features"] == "7; most moved node/x[0]: stability index 0.000 (stable), 0.0 % would have to move"
    assert sum(name.startswith("drift of node/") for name in rows) == 1, "what is stable is told in one row"
    rows = dict(profile.facts(profile.compare(told(features), told(features))))
    assert rows["all features"].startswith("8; most moved ")
    assert profile.text(found).startswith("data against the champion's: nodes 100 -> 150, degrees 0.000, node/x[3] ")


def prepared(home: Home, recipe: Recipe) -> dict[str, Parent]:
    return Line(home).run(recipe, until="partition")


def test_features_of_tables_are_described_as_they_came(tmp_path: Path, home: Home) -> None:
    """Before any transform; of a snapshot what exists; a table in pieces as a whole one."""
    write_tables(tmp_path)
    whole = prepared(home, recipe_of(tmp_path))
    snapshot = prepared(home, recipe_of(tmp_path, snapshot={"as_of": str(N // 2 - 1)}))
    rows = pc.read_csv(tmp_path / "nodes.csv").to_pandas()
    store = profile.DatasetStore(whole["ingest"].folder, whole["ingest"].manifest)
    found = profile._features(store, None)
    assert found["node/a"]["mean"] == pytest.approx(rows.a.mean(), rel=1e-5)
    assert found["node/a"]["values"][50] == pytest.approx(np.median(rows.a), rel=1e-4)
    assert found["node/colour"]["shares"] == pytest.approx(rows.colour.value_counts(normalize=True).to_dict(), abs=1e-5)
    kept = profile.GraphStore(snapshot["preprocess"].folder, snapshot["preprocess"].manifest)["node_ids"]
    early = profile._features(store, np.asarray(kept))
    assert early["node/a"]["rows"] == N // 2
    assert early["node/a"]["mean"] == pytest.approx(rows.a[: N // 2].mean(), rel=1e-5)


def test_large_tables_are_sampled(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.ingest.writer.SHARD_ROWS", 8)
    monkeypatch.setattr("tasks.ingest.writer.GROUP_ROWS", 4)
    monkeypatch.setattr(profile, "_MAX_ROWS", 40)
    monkeypatch.setattr(profile, "_MAX_GROUPS", 6)
    monkeypatch.setattr(profile, "_MAX_COLUMNS", 3)
    write_tables(tmp_path)
    parents = prepared(home, recipe_of(tmp_path))
    found = profile._features(profile.DatasetStore(parents["ingest"].folder, parents["ingest"].manifest), None)
    assert list(found) == ["node/a", "node/b", "node/c"]
    assert 6 <= found["node/a"]["rows"] <= 24


def test_a_profile_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert profile.read(tmp_path) is None
    for text in ("{", "[]", "{}"):
        (tmp_path / profile.FILE_NAME).write_text(text)
        assert profile.read(tmp_path) is None


# ---- rows that a model was trained on


def test_training_rows_are_known_by_their_ids(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Published up to a number of rows; of more nobody knows."""
    write_customers(tmp_path / "old", count=100)
    write_customers(tmp_path / "new", count=150, seed=1)
    old, new = (
        prepared(home, customers(tmp_path / name, f"dataset.split.seed={len(name)}")) for name in ("old", "new")
    )
    newer = prepared(home, customers(tmp_path / "new", "dataset.split.seed=9"))
    mask = np.isin(
        row_hashes(newer["partition"], newer["ingest"], "valid"), row_hashes(old["partition"], old["ingest"], "train")
    )
    assert 0 < mask.sum() < len(mask)

    files = tmp_path / "files"
    files.mkdir()
    write_trained(files, old["partition"], old["ingest"])
    seen = trained_on(files, newer["partition"], newer["ingest"])
    assert seen is not None
    assert (seen == mask).all()
    (files / HASHES).write_bytes(b"rubbish")
    assert trained_on(files, newer["partition"], newer["ingest"]) is None
    monkeypatch.setattr(trained, "MOST_ROWS", 3)
    (tmp_path / "large").mkdir()
    write_trained(tmp_path / "large", old["partition"], old["ingest"])
    assert [path.name for path in (tmp_path / "large").iterdir()] == [FACTS]
    assert row_names(new["partition"], new["ingest"]) == "ids"


@pytest.mark.parametrize(
    ("old", "new", "together"),
    [
        ((True, True), (True, True), True),  # (directed, symmetrize)
        ((True, False), (True, False), False),
        ((True, False), (True, True), True),
        ((True, False), (False, True), True),
        ((False, True), (True, False), True),
        ((False, True), (False, True), True),
    ],
)
def test_a_link_and_its_reverse_are_one_unless_both_trainings_told_them_apart(
    tmp_path: Path, home: Home, old: tuple[bool, bool], new: tuple[bool, bool], together: bool
) -> None:
    ends = np.arange(1, 16), np.arange(2, 17)
    parts = {"there": [5, 10], "back": [0, 12], "again": [0, 12]}
    made = {}
    for name, (first, second) in parts.items():
        src, dst = ends[::-1] if name == "back" else ends
        part = np.array(["train"] * 15, object)
        part[first : first + 3], part[second : second + 3] = "valid", "test"
        pc.write_csv(pa.table({"src": src, "dst": dst, "part": part}), tmp_path / f"{name}.csv")
        directed, symmetrize = old if name == "there" else new
        dataset = {"task": "link", "nodes": [], "edges": {"files": str(tmp_path / f"{name}.csv")}, "directed": directed}
        options = ["preprocess.transforms=[]", f"preprocess.symmetrize={symmetrize}", "preprocess.workers=1"]
        recipe = customers(tmp_path, *options, **dataset, num_negatives=5, split={"by": "column", "column": "part"})
        made[name] = prepared(home, recipe)
    write_trained(tmp_path, made["there"]["partition"], made["there"]["ingest"])
    for name, expected in (("again", True), ("back", together)):
        found = trained_on(tmp_path, made[name]["partition"], made[name]["ingest"])
        assert found.tolist() == [expected] * 3, name


@pytest.mark.parametrize("own", ["id", "count", "edges", None])
def test_row_numbers_of_a_table_without_ids_name_nothing_elsewhere(tmp_path: Path, home: Home, own: str | None) -> None:
    for name, count in (("old", 100), ("new", 120)):
        write_customers(tmp_path / name, count=count)
        table = pq.read_table(tmp_path / name / "customers.parquet")
        numbered = table.set_column(0, "id", pa.array(np.arange(count)))
        pq.write_table(numbered, tmp_path / name / "customers.parquet")
        edges = {"src": np.arange(count), "dst": np.roll(np.arange(count), 1)}
        pq.write_table(pa.table(edges), tmp_path / name / "knows.parquet")
    made = []
    for name, count in (("old", 100), ("new", 120)):
        folder = tmp_path / name
        nodes: dict[str, Any] = {"files": str(folder / "customers.parquet"), "features": ["x"], "label": ["kind"]}
        more: dict[str, Any] = {}
        if own in ("count", "edges"):
            nodes = {"count": count} if own == "count" else {}
            more = {"labels": {"files": str(folder / "customers.parquet"), "label": ["kind"]}}
        tables = [] if own == "edges" else [nodes | {"id": None if own is None else "id"}]
        made.append(prepared(home, customers(folder, "preprocess.transforms=[]", nodes=tables, **more)))
    old, new = made
    write_trained(tmp_path, old["partition"], old["ingest"])
    found = trained_on(tmp_path, new["partition"], new["ingest"])
    assert (found is None) == (own is None)
    assert trained_on(tmp_path, old["partition"], old["ingest"]) is not None
