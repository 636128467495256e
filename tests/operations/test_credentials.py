"""Both servers beyond loopback: nothing without credentials, from foreign pages or under foreign names."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.flows.conftest import graphmill
from tests.operations.conftest import Installation, bring_up

FOREIGN = "https://evil.example"

pytestmark = pytest.mark.timeout(900)  # a loaded machine takes ten times as long


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Installation, str]]:
    found = bring_up(tmp_path_factory.mktemp("exposed"), "--host", "0.0.0.0", "--public-name", "graphs.example")
    yield found, json.loads((found.home / "services" / "settings.json").read_text())["password"]
    graphmill(found.home, "down")


def test_the_password_is_kept_for_the_owner_and_shown_once(exposed: tuple[Installation, str]) -> None:
    installation, password = exposed
    assert stat.S_IMODE((installation.home / "services" / "settings.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((installation.home / "services" / "mlflow-auth.ini").stat().st_mode) == 0o600
    assert password not in installation.run("up").stdout
    assert password not in installation.run("status", "--json").stdout


@pytest.mark.parametrize("path", ["flow_runs/count", "deployments/filter", "work_pools/filter", "variables/filter"])
def test_prefect_wants_credentials(exposed: tuple[Installation, str], path: str) -> None:
    installation, password = exposed
    url, right = f"{installation.prefect}/api/{path}", ("graphmill", password)
    query = {"client": "a-test"}
    assert requests.get(f"{installation.prefect}/api/csrf-token", query, timeout=30).status_code == 401
    token = requests.get(f"{installation.prefect}/api/csrf-token", query, auth=right, timeout=30).json()["token"]
    headers = {"Prefect-Csrf-Token": token, "Prefect-Csrf-Client": "a-test"}
    for auth, given, status in (
        (None, headers, 401),
        (("graphmill", "wrong"), headers, 401),
        (right, {}, 403),  # what a foreign form would send: the browser adds the password, the token is missing
        (right, headers, 200),
    ):
        assert requests.post(url, json={}, auth=auth, headers=given, timeout=30).status_code == status


def test_prefect_refuses_foreign_pages(exposed: tuple[Installation, str]) -> None:
    installation, password = exposed
    url = f"{installation.prefect}/api/admin/version"
    answer = requests.get(url, auth=("graphmill", password), headers={"Origin": FOREIGN}, timeout=30)
    assert answer.status_code == 403
    own = f"http://graphs.example:{installation.prefect.rpartition(':')[2]}"
    answer = requests.get(url, auth=("graphmill", password), headers={"Origin": own}, timeout=30)
    assert answer.status_code == 200
    assert answer.headers.get("access-control-allow-origin") == own


@pytest.mark.parametrize("path", ["experiments/search", "runs/search", "registered-models/search"])
def test_mlflow_wants_credentials(exposed: tuple[Installation, str], path: str) -> None:
    installation, password = exposed
    url = f"{installation.mlflow}/api/2.0/mlflow/{path}"
    call = requests.get if path.startswith("registered") else requests.post
    body = {} if path.startswith("registered") else {"json": {"max_results": 1, "experiment_ids": ["0"]}}
    assert call(url, timeout=30, **body).status_code == 401  # type: ignore[arg-type]
    assert call(url, auth=("graphmill", "wrong"), timeout=30, **body).status_code == 401  # type: ignore[arg-type]
    assert call(url, auth=("graphmill", password), timeout=30, **body).status_code == 200  # type: ignore[arg-type]


def test_mlflow_refuses_foreign_pages_and_foreign_names(exposed: tuple[Installation, str]) -> None:
    installation, password = exposed
    url = f"{installation.mlflow}/api/2.0/mlflow/experiments/create"
    auth = ("graphmill", password)
    answer = requests.post(url, json={"name": "x"}, auth=auth, headers={"Origin": FOREIGN}, timeout=30)
    assert answer.status_code == 403
    answer = requests.post(url, json={"name": "x"}, auth=auth, headers={"Host": "evil.example"}, timeout=30)
    assert answer.status_code == 403
    port = installation.mlflow.rpartition(":")[2]
    answer = requests.get(
        f"{installation.mlflow}/api/2.0/mlflow/experiments/get?experiment_id=0",
        auth=auth,
        headers={"Host": f"graphs.example:{port}"},
        timeout=30,
    )
    assert answer.status_code == 200


def test_prefect_refuses_foreign_names(exposed: tuple[Installation, str]) -> None:
    installation, password = exposed
    url = f"{installation.prefect}/api/admin/version"
    auth = ("graphmill", password)
    assert requests.get(url, auth=auth, headers={"Host": "evil.example"}, timeout=30).status_code == 400
    port = installation.prefect.rpartition(":")[2]
    answer = requests.get(url, auth=auth, headers={"Host": f"graphs.example:{port}"}, timeout=30)
    assert answer.status_code == 200


@pytest.mark.slow
def test_a_run_goes_through_with_credentials(exposed: tuple[Installation, str], tmp_path: Path) -> None:
    installation, _ = exposed
    installation.run("deploy", str(installation.recipe), "--name", "guarded")
    installation.run("backfill", "create", "guarded", "--grid", "seed=0", "--id", "guarded")
    installation.run("backfill", "watch", "guarded")
    assert installation.json("backfill", "status", "guarded")["counts"] == {"completed": 1}
