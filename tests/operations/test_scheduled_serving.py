"""Predictions on a schedule: the flow is loaded by its module, told by plain values, on real servers and a worker."""

from __future__ import annotations

import datetime
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq
import pytest

from tests.operations.conftest import Installation

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_predictions_are_deployed_by_command(installation: Installation) -> None:
    installation.run("run", str(installation.recipe))
    folder = installation.home.parent
    output = str(folder / "kinds-{date}.parquet")
    options = ["--name", "mornings", "--predict", "tiny@champion", "--output", output]
    cron = ["--cron", "0 6 * * *", "--timezone", "Asia/Tokyo"]
    shown = installation.run("deploy", str(installation.recipe), *options, *cron, cwd=folder).stdout
    assert "backfill" not in shown
    (row,) = (row for row in installation.json("deployments")["deployments"] if row["name"] == "mornings")
    assert row["recipe"] == f"predictions of tiny@champion for {installation.recipe}"
    assert row["schedule"] == "0 6 * * * Asia/Tokyo"
    installation.wait(lambda: "06:00 JST" in installation.run("deployments").stdout)
    done = installation.run("start", "mornings", "--watch", cwd=folder)
    assert "tiny version" in done.stdout
    today = datetime.datetime.now(ZoneInfo("Asia/Tokyo"))
    names = [f"kinds-{day:%Y-%m-%d}.parquet" for day in (today, today - datetime.timedelta(days=1))]
    (written,) = (folder / name for name in names if (folder / name).exists())
    assert pq.read_metadata(written).num_rows == 400
    records = installation.json("runs", "predictions of tiny@champion")["runs"]
    assert records[0]["status"] == "completed"
    pages = installation.api("artifacts/filter", {"flow_runs": {"id": {"any_": [records[0]["id"]]}}})
    (text,) = (one["data"] for one in pages if one["key"] == "predictions")
    assert str(written) in text
    assert str(written) in installation.run("inspect", "predictions of tiny@champion").stdout
    other = folder / "other.parquet"
    installation.run("start", "mornings", f"output={other}", "--watch", cwd=folder)
    assert other.exists()
    for arguments, words in (
        (["start", "mornings", "model=other@1"], "no parameter 'model'"),
        (["start", "mornings", "outptu=x.parquet"], "did you mean 'output'"),
        (["backfill", "create", "mornings", "--grid", "seed=0..1"], "a backfill is of a recipe's deployment"),
        (["deploy", str(installation.recipe), "--name", "mornings"], "predictions of tiny@champion"),
        (["deploy", "--name", "n", "--predict", "tyni@champion"], "no registered model 'tyni'; there are tiny"),
        (["deploy", *options[:-1], "x.xlsx", *cron], "--output x.xlsx must end with"),
        (["deploy", *options, "--no-promote"], "what --predict makes publishes no version"),
        (["deploy", "--name", "n"], "name a recipe, or a model"),
        (["deploy", str(installation.recipe), "--name", "n", "--output", "x.parquet"], "go with --predict"),
    ):
        refused = installation.run(*arguments, ok=False, cwd=folder)
        assert refused.returncode == 2
        assert words in refused.stderr
    installation.run("undeploy", "mornings")
