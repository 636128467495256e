"""Predictions on a schedule: the flow is loaded by its module, told by plain values, on real servers and a worker."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
import requests

from tests.flows.conftest import ROOT
from tests.operations.conftest import Installation

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_a_schedule_predicts_with_whoever_is_champion(installation: Installation) -> None:
    installation.run("run", str(installation.recipe))
    versions = installation.json("versions", "tiny")["models"]["tiny"]["versions"]  # other tests train this model too
    (champion,) = (one["version"] for one in versions if one["champion"])
    output = installation.home.parent / "nightly.parquet"
    flow_id = installation.api("flows/", {"name": "predict_nodes"})["id"]
    deployment = installation.api(
        "deployments/",
        {
            "name": "nightly",
            "flow_id": flow_id,
            "entrypoint": "flows.apply.predict_nodes",
            "work_pool_name": "graphmill",
            "job_variables": {"working_dir": str(ROOT)},
            "parameters": {"model": "tiny@champion", "output": str(output), "home": str(installation.home)},
            "schedules": [{"schedule": {"cron": "* * * * *", "timezone": "UTC"}, "active": True}],
        },
    )
    by_deployment = {"deployments": {"id": {"any_": [deployment["id"]]}}}

    def finished() -> list[str]:
        runs = installation.api("flow_runs/filter", by_deployment)
        ended = {run["state_type"] for run in runs} & {"FAILED", "CRASHED"}
        assert not ended, runs
        return [run["id"] for run in runs if run["state_type"] == "COMPLETED" and run["auto_scheduled"]]

    try:
        ids = installation.wait(finished)
    finally:  # else it goes on beside the other tests
        requests.delete(f"{installation.prefect}/api/deployments/{deployment['id']}", timeout=30)
    assert pq.read_metadata(output).num_rows == 400
    shown = installation.api("artifacts/filter", {"flow_runs": {"id": {"any_": ids}}})
    (text,) = (one["data"] for one in shown if one["key"] == "predictions")
    assert str(output) in text
    assert f"tiny version {champion}" in text
