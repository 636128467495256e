"""Deployments on a real server, started by schedule, by hand, and through a backfill."""

from __future__ import annotations

import datetime
import json
import subprocess

import pytest
import requests

from tests.flows.conftest import environment
from tests.operations.conftest import Installation

pytestmark = pytest.mark.timeout(900)  # a loaded machine takes ten times as long


def deploy(installation: Installation, name: str, *options: str) -> None:
    installation.run("deploy", str(installation.recipe), "--name", name, *options)


def deployment_id(installation: Installation, name: str) -> str:
    (row,) = (row for row in installation.json("deployments")["deployments"] if row["name"] == name)
    return str(row["id"])


def start(installation: Installation, name: str, parameters: dict[str, object]) -> requests.Response:
    url = f"{installation.prefect}/api/deployments/{deployment_id(installation, name)}/create_flow_run"
    body = {"parameters": parameters, "state": {"type": "SCHEDULED"}}
    return requests.post(url, json=body, timeout=30)


def test_a_deployment_is_listed_paused_and_removed(installation: Installation) -> None:
    deploy(installation, "listed", "--cron", "0 3 * * *", "--timezone", "Europe/Berlin")
    (row,) = (row for row in installation.json("deployments")["deployments"] if row["name"] == "listed")
    assert row["schedule"] == "0 3 * * * Europe/Berlin"
    assert not row["paused"]
    installation.run("pause", "listed")
    assert [r["paused"] for r in installation.json("deployments")["deployments"] if r["name"] == "listed"] == [True]
    deploy(installation, "listed", "--cron", "0 4 * * *", "--timezone", "Europe/Berlin")
    (row,) = (row for row in installation.json("deployments")["deployments"] if row["name"] == "listed")
    assert row["schedule"] == "0 4 * * * Europe/Berlin"
    assert row["paused"], "renewing it does not resume it"
    installation.run("resume", "listed")
    assert [r["paused"] for r in installation.json("deployments")["deployments"] if r["name"] == "listed"] == [False]
    installation.run("undeploy", "listed")
    assert "listed" not in [row["name"] for row in installation.json("deployments")["deployments"]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--cron", "0 3 * *"], ["--cron", "0 3 * *"]),
        (["--cron", "0 3 * * *", "--timezone", "Mars/Olympus"], ["Mars/Olympus"]),
        (["--every", "often"], ["--every", "6h"]),
        (["--every", "1h", "--cron", "0 3 * * *"], ["two schedules"]),
        (["--timezone", "Europe/Berlin"], ["--timezone goes with --cron"]),
        (["--set", "train.epoch=3"], ["epoch", "epochs"]),
        (
            ["--pool", "graphmil"],
            ["--pool graphmil", "did you mean 'graphmill'", "graphmill --home", "worker --pool graphmil\n"],
        ),
    ],
)
def test_a_wrong_deployment_is_refused_and_not_made(
    installation: Installation, options: list[str], words: list[str]
) -> None:
    done = installation.run("deploy", str(installation.recipe), "--name", "wrong", *options, ok=False)
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr
    assert "wrong" not in [row["name"] for row in installation.api("deployments/filter", {})]


def test_the_form_refuses_a_wrong_value_before_a_run_exists(installation: Installation) -> None:
    deploy(installation, "form")
    for parameters in (
        {"options": {"train": {"epochs": "many"}}},
        {"options": {"train": {"loader": "fast"}}},
        {"overrides": ["train.epochs"]},
        {"snapshot": "yesterday"},
        {"only": ["trian"]},
        {"recipe": "another"},
    ):
        answer = start(installation, "form", parameters)
        assert answer.status_code == 409, (parameters, answer.text)
    runs = installation.api("flow_runs/filter", {"deployments": {"name": {"any_": ["form"]}}})
    assert runs == []


@pytest.fixture(scope="module")
def checked(installation: Installation) -> Installation:
    deploy(installation, "checked")
    return installation


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("train.epochs=0", ["train.epochs", "greater than or equal to 1"]),
        ("train.epoch=3", ["unknown key 'epoch'", "did you mean 'epochs'"]),
        ("snapshot=yesterday", ["yesterday", "2023-06"]),
        ("trian=3", ["no parameter 'trian'", "did you mean 'train'"]),
        ("epochs", ["key=value"]),
    ],
)
def test_a_start_is_checked_as_the_form_is(checked: Installation, setting: str, words: list[str]) -> None:
    done = checked.run("start", "checked", setting, ok=False)
    assert done.returncode == 2, done.stderr
    for word in words:
        assert word in done.stderr
    mine = {"deployments": {"name": {"any_": ["checked"]}}}
    assert checked.api("flow_runs/filter", mine) == []


def test_a_deployment_that_nobody_made_is_not_started(checked: Installation) -> None:
    assert "did you mean 'checked'" in checked.run("start", "cheked", ok=False).stderr


@pytest.mark.slow
def test_the_command_that_deploy_prints_starts_a_run_and_follows_it(installation: Installation) -> None:
    shown = installation.run("deploy", str(installation.recipe), "--name", "printed", "--set", "train.epochs=2").stdout
    printed = next(line.split(maxsplit=1)[1] for line in shown.splitlines() if line.startswith("start"))
    begun = subprocess.run(
        f"{printed} train.epochs=3", shell=True, capture_output=True, text=True, env=environment(), timeout=600
    )
    assert begun.returncode == 0, begun.stdout + begun.stderr
    lines = dict(line.split(maxsplit=1) for line in begun.stdout.splitlines() if " " in line)
    record = json.loads((installation.home / "runs" / f"{lines['run']}.json").read_text())
    assert record["config"]["train"]["epochs"] == 3, "what is asked now stands above what was deployed"
    assert "train: ran" in begun.stderr
    assert f"test {record['metrics']['test']['accuracy']:.4f}" in " ".join(begun.stdout.split())
    assert lines["mlflow"].startswith(f"{installation.mlflow}/#/experiments/")
    assert lines["mlflow"].endswith(f"/runs/{record['mlflow_run_id']}?workflowType=machine_learning")
    assert lines["prefect"] == f"{installation.prefect}/runs/flow-run/{lines['run']}"
    assert "View run" not in begun.stdout + begun.stderr


@pytest.mark.slow
def test_watching_a_run_that_fails_exits_as_the_run_does(installation: Installation) -> None:
    deploy(installation, "failing")
    done = installation.run("start", "failing", "tracking.gate_metric=valid/rmse", "--watch", ok=False)
    assert done.returncode == 2
    assert "valid/rmse is not measured" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_run_from_the_form_takes_its_options(installation: Installation) -> None:
    deploy(installation, "by-hand", "--set", "train.epochs=2")
    answer = start(installation, "by-hand", {"options": {"model": {"hidden_dim": 8}}, "overrides": ["seed=5"]})
    assert answer.ok, answer.text
    run_id = answer.json()["id"]
    installation.wait(lambda: installation.api(f"flow_runs/{run_id}")["state_type"] == "COMPLETED")
    record = json.loads((installation.home / "runs" / f"{run_id}.json").read_text())
    assert record["status"] == "completed"
    assert record["deployment"] == deployment_id(installation, "by-hand")
    assert record["config"]["model"]["hidden_dim"] == 8
    assert record["config"]["seed"] == 5
    keys = {
        artifact["key"] for artifact in installation.api("artifacts/filter", {"flow_runs": {"id": {"any_": [run_id]}}})
    }
    assert "result" in keys


@pytest.mark.slow
def test_a_schedule_fires(installation: Installation) -> None:
    """The schedule's next minute, at most 60 s away and the scheduler's loop beside it."""
    deploy(installation, "every-minute", "--cron", "* * * * *", "--timezone", "UTC")
    began = datetime.datetime.now(datetime.UTC)

    def scheduled_run_ended() -> bool:
        runs = installation.api("flow_runs/filter", {"deployments": {"name": {"any_": ["every-minute"]}}})
        ended = [run for run in runs if run["state_type"] == "COMPLETED"]
        return bool(ended) and all(run["auto_scheduled"] for run in ended)

    installation.wait(scheduled_run_ended)
    installation.run("undeploy", "every-minute")
    assert datetime.datetime.now(datetime.UTC) > began
