"""Backfills on a real server and worker."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import requests

from tests.operations.conftest import Installation
from tests.operations.test_deployments import deploy

# Slow: each run is a quarter of a minute on an idle machine, ten times that on a loaded one.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_grid_runs_once_however_often_it_is_created(installation: Installation) -> None:
    deploy(installation, "grid")
    asked = ["backfill", "create", "grid", "--grid", "model.name=gcn,sgc", "seed=0..1", "--max-active", "2"]
    dry = installation.json(*asked, "--dry-run")
    names = [f"model.name={model} seed={seed}" for model in ("gcn", "sgc") for seed in (0, 1)]
    assert [item["name"] for item in dry["partitions"]] == names
    assert installation.json("backfill", "list")["backfills"] == []
    made = installation.json(*asked, "--id", "twice", "--set", "train.loader=full", "--reprocess", "all")
    assert made["id"] == "twice"
    installation.run(*asked, "--id", "twice", "--set", "train.loader=full", "--reprocess", "all")
    assert len(installation.flow_runs("backfill:twice")) == 4
    installation.run("backfill", "cancel", "twice")
    status = installation.json("backfill", "status", "twice")
    assert set(status["counts"]) <= {"cancelled", "cancelling", "completed", "pending", "running"}


def test_a_backfill_runs_in_order_skips_results_and_reports(installation: Installation) -> None:
    deploy(installation, "ordered")
    installation.run("run", str(installation.recipe), "seed=1")  # has its result already
    installation.run("backfill", "create", "ordered", "--grid", "seed=0..3", "--id", "ordered", "--reverse")
    installation.run("backfill", "watch", "ordered")
    status = installation.json("backfill", "status", "ordered")
    states = ["completed", "skipped", "completed", "completed"]
    assert {row["name"]: row["state"] for row in status["partitions"]} == {f"seed={n}": s for n, s in enumerate(states)}
    assert all(row["metrics"]["test"]["accuracy"] > 0 for row in status["partitions"])
    runs = sorted(installation.flow_runs("backfill:ordered"), key=lambda run: run["start_time"])
    assert [run["name"].split()[-1] for run in runs] == ["seed=0", "seed=2", "seed=3"]
    _one_after_the_other(runs)
    children = _mlflow_children(installation, status["mlflow_run_id"])
    assert sorted(str(child["info"]["run_name"]) for child in children) == ["tiny seed=0", "tiny seed=2", "tiny seed=3"]
    page = installation.home.parent / "ordered.html"
    installation.run("backfill", "report", "ordered", "-o", str(page))
    text = page.read_text()
    assert "Backfill ordered" in text
    assert "skipped" in text
    assert "<svg" in text
    assert ">shared</td>" in text
    stages = {row["name"]: row["stages"] for row in status["partitions"]}
    assert stages["seed=1"] is None, "its result was there"
    assert {name for name, one in stages["seed=3"].items() if one["status"] == "cached"} >= {"ingest", "preprocess"}
    for folder in (installation.home / "artifacts" / "evaluate").iterdir():
        folder.rename(folder.with_name(f"away-{folder.name}"))  # as if the stage had another version by now
    rows = installation.json("backfill", "status", "ordered")["partitions"]
    # seed=1 never ran here: only the result itself could tell
    assert {row["name"]: bool(row["metrics"]) for row in rows} == {f"seed={n}": n != 1 for n in range(4)}


def _one_after_the_other(runs: list[dict[str, str]]) -> None:
    for one, next_one in itertools.pairwise(runs):
        assert one["end_time"] <= next_one["start_time"], "two partitions at a time, one was asked"


def _mlflow_children(installation: Installation, parent: str) -> list[dict[str, Any]]:
    experiments = requests.post(
        f"{installation.mlflow}/api/2.0/mlflow/experiments/search", json={"max_results": 10}, timeout=30
    ).json()["experiments"]
    found = requests.post(
        f"{installation.mlflow}/api/2.0/mlflow/runs/search",
        json={
            "experiment_ids": [experiment["experiment_id"] for experiment in experiments],
            "filter": f"tags.mlflow.parentRunId = '{parent}'",
        },
        timeout=30,
    )
    return found.json().get("runs", [])


def test_failed_partitions_run_again_when_asked(installation: Installation) -> None:
    deploy(installation, "failing", "--set", "train.device=cuda")  # there is none here: each run fails
    installation.run("backfill", "create", "failing", "--grid", "seed=40,41", "--id", "failing", "--max-active", "2")
    done = installation.run("backfill", "watch", "failing", ok=False)
    assert done.returncode == 1
    status = installation.json("backfill", "status", "failing", ok=False)
    assert status["counts"] == {"failed": 2}
    assert all("cuda" in row["message"].lower() for row in status["partitions"])
    before = {run["id"] for run in installation.flow_runs("backfill:failing")}
    installation.run("backfill", "pause", "failing")
    assert "seed=40" in installation.run("backfill", "retry-failed", "failing").stdout
    assert {run["id"] for run in installation.flow_runs("backfill:failing")} == before  # the same runs
    assert installation.json("backfill", "status", "failing")["paused"]
    assert installation.json("backfill", "status", "failing")["counts"] == {"scheduled": 2}
    installation.run("backfill", "cancel", "failing")
    assert installation.json("backfill", "status", "failing")["counts"] == {"cancelled": 2}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--from", "2021"], ["--to"]),
        (["--from", "2021", "--to", "2022", "--every", "yaer"], ["'yaer' is not one of 'year'"]),
        (["--grid", "seed=1,1"], ["is listed twice"]),
        (["--grid", "model.name=gnc"], ["partition model.name=gnc", "gcn"]),
        (["--id", "Bad Name", "--grid", "seed=0"], ["--id"]),
        ([], ["--from", "--grid"]),
    ],
)
def test_a_wrong_backfill_is_refused_and_nothing_is_made(
    installation: Installation, options: list[str], words: list[str]
) -> None:
    deploy(installation, "refusing")
    before = len(installation.json("backfill", "list")["backfills"])
    done = installation.run("backfill", "create", "refusing", *options, ok=False)
    assert done.returncode == 2, done.stderr
    for word in words:
        assert word in done.stderr
    assert len(installation.json("backfill", "list")["backfills"]) == before


def test_an_id_keeps_its_meaning(installation: Installation) -> None:
    deploy(installation, "meaning")
    installation.run("backfill", "create", "meaning", "--grid", "seed=90", "--id", "meaning")
    installation.run("backfill", "pause", "meaning")
    done = installation.run("backfill", "create", "meaning", "--grid", "seed=91", "--id", "meaning", ok=False)
    assert done.returncode == 2
    assert "grid" in done.stderr
    installation.run("backfill", "cancel", "meaning")
    done = installation.run("backfill", "status", "meanin", ok=False)
    assert "did you mean 'meaning'" in done.stderr


def test_a_backfill_is_cancelled_outlives_its_deployment_and_is_removed(installation: Installation) -> None:
    requests.post(f"{installation.prefect}/api/work_pools/", json={"name": "elsewhere", "type": "process"}, timeout=30)
    deploy(installation, "short-lived", "--pool", "elsewhere")
    installation.run("backfill", "create", "short-lived", "--grid", "seed=0,1", "--id", "short")
    crashed = installation.flow_runs("backfill:short")[0]["id"]
    url = f"{installation.prefect}/api/flow_runs/{crashed}/set_state"
    assert requests.post(url, json={"state": {"type": "CRASHED"}, "force": True}, timeout=30).ok
    done = installation.run("backfill", "remove", "short", ok=False)
    assert done.returncode == 2
    assert "graphmill backfill cancel short" in done.stderr
    # The crashed one too: it would start again.
    assert "2 runs cancelled" in installation.run("backfill", "cancel", "short").stdout
    assert installation.json("backfill", "status", "short")["counts"] == {"cancelled": 2}
    installation.run("undeploy", "short-lived")
    assert "short" in [one["id"] for one in installation.json("backfill", "list")["backfills"]]
    installation.json("backfill", "status", "short")
    installation.run("backfill", "remove", "short")
    assert "short" not in [one["id"] for one in installation.json("backfill", "list")["backfills"]]
