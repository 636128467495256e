"""A snapshot against the one before it: numbers, file, page."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.load import build_recipe, dump_recipe
from tasks.publish import snapshots
from tasks.publish.plots import run_plots
from tasks.publish.report.page import render
from tasks.publish.report.parts import ReportedRun
from tasks.storage.home import Home
from tests.publish.test_report import NASTY, Page


def told(as_of: str, **changes: Any) -> dict[str, Any]:
    """What a publication told of a snapshot."""
    return {
        "recipe": "demo",
        "as_of": as_of,
        "nodes": 100,
        "edges": 400,
        "splits": {"train": 80, "valid": 10, "test": 10},
        "unit": "years",
        "times": {"train": [2020, 2021], "valid": [2022, 2022], "test": [2022, 2022]},
        "degrees": {"log2_bins": [10, 40, 50], "mean": 4.0, "max": 3, "isolated": 10},
        "labels": {"kind": "classes", "rows": 100, "counts": [50, 50]},
        "classes": ["web", NASTY],
        "metric": "accuracy",
        "higher_is_better": True,
        "metrics": {"valid": {"accuracy": 0.5}, "test": {"accuracy": 0.5, "f1_macro": 0.4}},
        "warm_start": None,
        **changes,
    }


def test_drift_against_its_formulas() -> None:
    found = snapshots.drift([50, 50], [25, 75])
    assert found["tvd"] == pytest.approx(0.25)
    assert found["psi"] == pytest.approx(-0.25 * math.log(0.5) + 0.25 * math.log(1.5), abs=1e-6)
    assert snapshots.drift([3, 1], [6, 2]) == {"psi": 0.0, "tvd": 0.0}
    assert snapshots.drift([1], [0, 1]) == {"psi": pytest.approx(2 * (1 - 1e-4) * math.log(1e4), rel=1e-3), "tvd": 1.0}
    assert snapshots.drift([], [1, 2]) is None
    assert snapshots.drift([0, 0], [1, 2]) is None


def test_growth_and_metrics() -> None:
    now = told("2023", nodes=150, edges=300, splits={"train": 120, "valid": 15, "test": 15})
    now["metrics"] = {"valid": {"accuracy": 0.6}, "test": {"accuracy": 0.45, "f1_macro": 0.5}}
    found = snapshots.compare(told("2021"), now)
    assert found["growth"]["nodes"] == [100, 150]
    assert found["growth"]["test split"] == [10, 15]
    assert found["metrics"] == {
        "valid": {"accuracy": [0.5, 0.6]},
        "test": {"accuracy": [0.5, 0.45], "f1_macro": [0.4, 0.5]},
    }
    assert found["drift"] == {"degrees": {"psi": 0.0, "tvd": 0.0}, "labels": {"psi": 0.0, "tvd": 0.0}}
    rows = dict(snapshots.facts({"snapshot": now, "previous": told("2021"), "comparison": found}))
    assert rows["nodes"] == "150, +50.0 % (was 100)"
    assert rows["edges"] == "300, -25.0 % (was 400)"
    assert rows["accuracy, test"] == "0.4500, -0.0500 (was 0.5000)"
    assert rows["times"] == "train 2020 to 2021, valid 2022, test 2022"
    timed = told("2023", unit="seconds", times={"train": [0, 86400], "test": [86400, 90000]})
    rows |= snapshots.facts({"snapshot": timed, "previous": None, "comparison": None})
    assert rows["times"] == "train 1970-01-01 to 1970-01-02, test 1970-01-02 to 1970-01-02 01:00"
    assert rows["drift of labels"] == "stability index 0.000 (stable), 0.0 % would have to move"


@pytest.mark.filterwarnings("error")
def test_splits_without_a_row() -> None:
    layouts = [
        told(as_of, nodes=9000, edges=90_000, splits={"train": 0, "valid": 0, "test": 0}) for as_of in ("1", "2")
    ]
    assert list(snapshots.compare(*layouts)["growth"]) == ["nodes", "edges"]
    emptied = told("3", nodes=9000, edges=90_000, splits={"train": 9000, "valid": 9000, "test": 0})
    before = emptied | {"splits": {"train": 9000, "valid": 9000, "test": 9000}}
    assert snapshots.compare(before, emptied)["growth"]["test split"] == [9000, 0]


def test_numbers_and_many_labels() -> None:
    rng = np.random.default_rng(0)
    old, new = rng.normal(0, 1, 5000), rng.normal(0.5, 1, 5000)
    percentiles = [np.quantile(values, np.linspace(0, 1, 101)).tolist() for values in (old, new)]
    labels = [{"kind": "percentiles", "rows": 5000, "values": values} for values in percentiles]
    found = snapshots.compare(told("1", labels=labels[0]), told("2", labels=labels[1]))["drift"]["labels"]
    edges = np.quantile(old, np.arange(0.1, 0.95, 0.1))
    shares = [np.histogram(values, np.concatenate([[-9], edges, [9]]))[0] / 5000 for values in (old, new)]
    assert found["tvd"] == pytest.approx(np.abs(shares[1] - shares[0]).sum() / 2, abs=0.01)
    assert found["psi"] == pytest.approx(((shares[1] - shares[0]) * np.log(shares[1] / shares[0])).sum(), abs=0.02)
    same = snapshots.compare(told("1", labels=labels[0]), told("2", labels=labels[0]))["drift"]["labels"]
    assert same == {"psi": pytest.approx(0, abs=1e-6), "tvd": pytest.approx(0, abs=1e-6)}
    many = [{"kind": "positives", "rows": 10, "counts": counts} for counts in ([5, 1], [5, 3])]
    found = snapshots.compare(told("1", labels=many[0]), told("2", labels=many[1]))["drift"]["labels"]
    assert found["tvd"] == pytest.approx((0 + 0.2) / 2)
    for pair in (labels, many):
        assert run_plots.label_picture(told("1", labels=pair[0]), told("2", labels=pair[1])) is not None
    none = {"kind": "classes", "rows": 0, "counts": [0, 0]}
    for before in (None, labels[0], none):
        assert snapshots.compare(told("1", labels=before), told("2"))["drift"]["labels"] is None
        assert run_plots.label_picture(told("1", labels=before), told("2")) is None


def test_new_classes_are_drift_too() -> None:
    before = told("1", labels={"kind": "classes", "rows": 10, "counts": [10]}, classes=["web"])
    found = snapshots.compare(before, told("2"))["drift"]["labels"]
    assert found["tvd"] == 0.5
    assert run_plots.label_picture(before, told("2")) is not None


def test_classes_are_compared_by_name() -> None:
    """Data ingested anew may number them otherwise."""
    before = told("1", labels={"kind": "classes", "rows": 100, "counts": [80, 20]}, classes=["a", "c"])
    labels = {"kind": "classes", "rows": 110, "counts": [80, 10, 20]}
    now = told("2", labels=labels, classes=["a", "b", "c"])
    found = snapshots.compare(before, now)["drift"]["labels"]
    assert found["tvd"] == pytest.approx(10 / 110, abs=1e-6)
    aligned = snapshots.label_counts(before, now)
    assert (aligned[0], *(counts.tolist() for counts in aligned[1:])) == (["a", "b", "c"], [80, 0, 20], [80, 10, 20])
    turned = told("2", labels={"kind": "classes", "rows": 100, "counts": [20, 80]}, classes=["c", "a"])
    assert snapshots.compare(before, turned)["drift"]["labels"] == {"psi": 0.0, "tvd": 0.0}
    gone = told("2", labels={"kind": "classes", "rows": 20, "counts": [20, 0]}, classes=["c"])
    assert snapshots.compare(before, gone)["drift"]["labels"]["tvd"] == pytest.approx(0.8)
    for names in (None, ["x", "x", "y"]):
        unknown = told("2", labels=labels, classes=names)
        assert snapshots.compare(before, unknown)["drift"]["labels"] is None
        assert run_plots.label_picture(before, unknown) is None
    nameless = [{**one, "classes": None} for one in (before, turned)]
    assert snapshots.compare(*nameless)["drift"]["labels"]["tvd"] == pytest.approx(0.6)
    assert run_plots.label_picture(*nameless) is not None
    assert snapshots.compare(nameless[0], {**now, "classes": None})["drift"]["labels"] is None


def recipe(as_of: str | None, **fields: Any) -> Any:
    given = {"name": "demo", "dataset": {"name": "synthetic"}, "model": {"name": "graphsage"}, **fields}
    return build_recipe({**given, "snapshot": {"as_of": as_of}})


def leave(home: Home, as_of: str, number: int) -> None:
    """Leave a published snapshot in the home."""
    key = f"key{number}"
    folder = home.artifacts / "publish" / key
    folder.mkdir(parents=True)
    snapshots.write_snapshot(folder / snapshots.FILE_NAME, told(as_of, nodes=number), None)
    record = {
        "id": key,
        "recipe": "demo",
        "config": dump_recipe(recipe(as_of)),
        "started_at": f"2026-01-0{number}T00:00:00+00:00",
        "stages": {"publish": {"key": key}},
    }
    home.runs.mkdir(exist_ok=True)
    (home.runs / f"{key}.json").write_text(json.dumps(record))


def test_the_newest_earlier_snapshot_is_found(home: Home) -> None:
    assert snapshots.previous(home, recipe("2023")) is None
    leave(home, "2021", 1)
    leave(home, "2025", 2)
    leave(home, "2022-05", 3)
    leave(home, "2022-05", 4)  # run again: the later publication counts
    assert [
        (snapshots.previous(home, recipe(t)) or {}).get("nodes") for t in ("2021", "2022", "2023", "2025-01", "2026")
    ] == [None, 4, 4, 4, 2]
    assert snapshots.previous(home, recipe(None)) is None
    assert snapshots.previous(home, recipe("2026", name="other")) is None
    (home.artifacts / "publish" / "key2" / snapshots.FILE_NAME).unlink()
    assert (snapshots.previous(home, recipe("2026")) or {})["nodes"] == 4


def test_years_and_seconds_are_ordered_as_times(home: Home) -> None:
    """The year 2023 ends after second 1,600,000,000, though 2023 is the smaller number."""
    leave(home, "2023", 1)
    leave(home, "1600000000", 2)

    def found(as_of: str) -> Any:
        one = recipe(as_of)
        timed = one.snapshot.model_copy(update={"unit": "seconds"})
        return (snapshots.previous(home, one.model_copy(update={"snapshot": timed})) or {}).get("nodes")

    assert [found(t) for t in ("1650000000", "2024", "1800000000", "2019", "2022-06")] == [2, 1, 1, None, 2]


def test_the_page_shows_the_comparison(tmp_path: Path) -> None:
    now = told("2023", nodes=150, labels={"kind": "classes", "rows": 150, "counts": [120, 30]})
    written = snapshots.write_snapshot(tmp_path / snapshots.FILE_NAME, now, told("2021"))
    assert json.loads((tmp_path / snapshots.FILE_NAME).read_text()) == written
    text = render(ReportedRun(recipe("2023"), {}, snapshot=written))
    page = Page(text)
    assert not page.loads
    assert "As of 2023, against 2021" in page.text
    assert "150, +50.0 % (was 100)" in page.text
    assert "another population" in page.text
    assert text.count("<figure>") == 1
    assert "<script" not in text
    assert "snapshot" in page.text  # among what was asked
    first = snapshots.write_snapshot(tmp_path / "a", now, None)
    alone = Page(render(ReportedRun(recipe("2023"), {}, snapshot=first)))
    assert "none of this recipe in this home yet" in alone.text
    without = Page(render(ReportedRun(recipe(None), {})))
    assert "As of" not in without.text
    cold = told("2023", warm_start={"as_of": "2021", "key": "k", "used": False, "why_not": "shapes"})
    assert (
        "those as of 2021 do not fit (shapes)"
        in dict(snapshots.facts({"snapshot": cold, "previous": None, "comparison": None}))["began with"]
    )
