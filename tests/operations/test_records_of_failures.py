"""Every run that was started is in the records, with a line of cause, also one whose recipe cannot be read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.apply.test_needs import write_tables
from tests.operations.conftest import Installation

pytestmark = pytest.mark.timeout(1800)

RECIPE = """
name: papers
dataset:
  name: tables
  nodes: {files: data/nodes.csv, features: [a, b, c, d, e], label: label}
  edges: {files: data/edges.csv}
model: {name: graphsage, hidden_dim: 8, num_layers: 2}
train: {loader: full, epochs: 2, threads: 1, num_ranks: 1}
tracking: {system_metrics: false}
"""


def started(installation: Installation, folder: Path, name: str, *settings: str) -> str:
    done = installation.run("start", name, *settings, cwd=folder)
    return next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("run "))


def failed(installation: Installation, run_id: str, recipe: str = "papers") -> dict[str, Any]:

    def listed() -> list[dict[str, Any]]:
        runs = installation.json("runs", "--status", "failed", "--limit", "100", ok=None).get("runs", [])
        return [run for run in runs if run["id"] == run_id]

    (record,) = installation.wait(listed, 300)
    assert record["recipe"] == recipe
    assert "\n" not in record["error"]
    assert record["error"] in " ".join(installation.run("inspect", run_id).stdout.split())
    return record  # type: ignore[no-any-return]


def shown(installation: Installation, run_id: str) -> str:
    """Return what the run's page says under Artifacts; its log has no traceback."""
    lines = installation.api("logs/filter", {"logs": {"flow_run_id": {"any_": [run_id]}}})
    assert not [line["message"] for line in lines if "Traceback" in line["message"]]
    pages = installation.api("artifacts/filter", {"flow_runs": {"id": {"any_": [run_id]}}})
    (text,) = (page["data"] for page in pages if page["key"] == "failure")
    return str(text)


@pytest.fixture(scope="module")
def nightly(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nightly")
    write_tables(folder / "data")
    (folder / "papers.yaml").write_text(RECIPE)
    installation.run("deploy", "papers.yaml", "--name", "failing-nights", cwd=folder)
    return folder


def test_an_input_that_is_gone_or_cut_is_told_in_a_line(installation: Installation, nightly: Path) -> None:
    edges = nightly / "data" / "edges.csv"
    content = edges.read_bytes()
    edges.write_bytes(content[: len(content) // 3].rpartition(b"\n")[0] + b"\nn1")
    cut = started(installation, nightly, "failing-nights")
    assert "edges.csv" in failed(installation, cut)["error"]
    assert "edges.csv" in shown(installation, cut)
    edges.unlink()
    gone = started(installation, nightly, "failing-nights")
    assert "edges.csv" in failed(installation, gone)["error"]
    assert "edges.csv" in shown(installation, gone)
    edges.write_bytes(content)


def test_a_recipe_that_is_gone_is_told_in_a_line(installation: Installation, nightly: Path) -> None:
    recipe, away = nightly / "papers.yaml", nightly / "away.yaml"
    recipe.rename(away)
    run_id = started(installation, nightly, "failing-nights")
    assert "papers.yaml" in failed(installation, run_id)["error"]
    assert "papers.yaml" in shown(installation, run_id)
    away.rename(recipe)


def test_a_prediction_without_its_model_is_told_in_a_line(installation: Installation, nightly: Path) -> None:
    flow = installation.api("flows/", {"name": "use_model"})["id"]
    parameters = {"model": "nosuch@champion", "home": str(installation.home)}
    deployment = installation.api(
        "deployments/",
        {
            "name": "no-model",
            "flow_id": flow,
            "entrypoint": "flows.apply.flows.use_model",
            "work_pool_name": "graphmill",
            "tags": ["graphmill"],
            "job_variables": {"working_dir": str(nightly)},
            "parameters": parameters,
        },
    )
    url = f"{installation.prefect}/api/deployments/{deployment['id']}"
    run_id = requests.post(f"{url}/create_flow_run", json={"state": {"type": "SCHEDULED"}}, timeout=30).json()["id"]
    assert "nosuch" in failed(installation, run_id, "predictions of nosuch@champion")["error"]
    assert "nosuch" in shown(installation, run_id)
    requests.delete(url, timeout=30)


def test_a_process_that_could_not_be_started_is_in_the_records(
    installation: Installation, nightly: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    shutil.copy(nightly / "papers.yaml", folder)
    write_tables(folder / "data")
    installation.run("deploy", "papers.yaml", "--name", "no-folder", cwd=folder)
    shutil.rmtree(folder)
    run_id = started(installation, nightly, "no-folder")
    assert failed(installation, run_id)["error"]
    installation.run("undeploy", "no-folder")
