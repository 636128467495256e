"""The compose file: what it says, and each of its commands on this machine with a real PostgreSQL."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.docker.conftest import COMPOSE, Natively, load_compose
from tests.flows.conftest import write_recipe
from tests.needs import skip_without
from tests.ports import free_ports
from tests.postgres import BINARIES, needs_postgres

OWN = ("prefect", "mlflow", "worker", "gpu-worker", "graphmill")


def served(test: Callable[..., None]) -> Any:
    return pytest.mark.slow(pytest.mark.timeout(900)(needs_postgres(test)))


def _compose_command() -> list[str] | None:
    if shutil.which("docker") and not subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else None


def test_docker_compose_accepts_the_file(tmp_path: Path) -> None:
    command = _compose_command()
    skip_without("docker compose", command)
    assert command is not None
    text = COMPOSE.read_text()
    if command == ["docker-compose"] and b" 1." in subprocess.run([*command, "version"], capture_output=True).stdout:
        text = text.replace("name: graphmill\n", "", 1)  # Debian's release is older than project names
    file = tmp_path / "compose.yaml"
    file.write_text(text)
    done = subprocess.run([*command, "-f", str(file), "config", "--quiet"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", OWN)
def test_own_services_are_confined(name: str) -> None:
    service = load_compose()["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "user" not in service, "the image's own user"
    assert service["healthcheck"] == {"disable": True} or service["healthcheck"]["test"][0] == "CMD"


def test_only_the_servers_are_published_and_on_loopback_unless_asked() -> None:
    services = load_compose()["services"]
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published == {"prefect": ["127.0.0.1:4200:4200"], "mlflow": ["127.0.0.1:5000:5000"]}
    moved = load_compose({"GRAPHMILL_PREFECT_PORT": "14200", "GRAPHMILL_BIND": "0.0.0.0"})["services"]["prefect"]
    assert moved["ports"] == ["0.0.0.0:14200:14200"]
    assert moved["environment"]["GRAPHMILL_PREFECT_URL"] == "http://prefect:14200"  # it listens where it is published


def test_secrets_are_files_and_reach_only_those_who_need_them() -> None:
    services = load_compose()["services"]
    has = {name: set(service.get("secrets", ())) for name, service in services.items()}
    assert has["worker"] == has["gpu-worker"] == has["graphmill"] == {"password"}
    assert has["postgres"] == {"database_password"}
    assert has["prefect"] == {"password", "database_password"}
    for name, service in services.items():
        for variable, value in service["environment"].items():
            if re.search("PASSWORD|SECRET|CREDENTIALS", variable):
                assert str(value).startswith("/run/secrets/"), f"{name}: {variable}"
    assert services["worker"]["networks"] == ["services"], "workers cannot reach the database"


@pytest.mark.parametrize(
    ("service", "arguments", "gone"),
    [
        ("prefect", (), "GRAPHMILL_PASSWORD_FILE"),
        ("mlflow", (), "GRAPHMILL_MLFLOW_SECRET_FILE"),
        ("worker", (), "GRAPHMILL_PASSWORD_FILE"),
        ("graphmill", ("deployments",), "GRAPHMILL_PASSWORD_FILE"),
    ],
)
def test_nothing_starts_without_its_secrets(
    tmp_path: Path, service: str, arguments: tuple[str, ...], gone: str
) -> None:
    done = Natively(tmp_path, {}).run(service, *arguments, **{gone: ""})
    assert done.returncode == 2, done.stderr
    assert f"{gone} is not set; docker/README.md" in done.stderr


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Natively]:
    ports = dict(zip(["postgres", "prefect", "mlflow", "worker"], free_ports(4), strict=True))
    compose = load_compose(
        {"GRAPHMILL_PUBLIC_NAMES": "graphs.example", "GRAPHMILL_MLFLOW_PAGES": "https://runs.example"}
    )
    natively = Natively(tmp_path_factory.mktemp("compose"), ports, compose)
    try:
        natively.start_postgres()
        for name in ("prefect", "mlflow"):
            natively.start(name)
        natively.wait_until_healthy("prefect", "mlflow")
        natively.start("worker")
        natively.wait_until_healthy("worker")
        yield natively
    finally:
        natively.stop()


def _ask(up: Natively, server: str, password: str | None, **headers: str) -> int:
    paths = {"prefect": "/api/admin/version", "mlflow": "/api/2.0/mlflow/experiments/get?experiment_id=0"}
    auth = None if password is None else ("graphmill", password)
    return requests.get(up.url(server) + paths[server], auth=auth, headers=headers, timeout=60).status_code


@served
@pytest.mark.parametrize("server", ["prefect", "mlflow"])
def test_servers_answer_those_they_know(up: Natively, server: str) -> None:
    assert _ask(up, server, None) == 401
    assert _ask(up, server, "wrong") == 401
    assert _ask(up, server, up.password) == 200
    assert _ask(up, server, up.password, Host=f"{server}:{up.ports[server]}") == 200, "by the name of its container"
    assert _ask(up, server, up.password, Host="evil.example") in (400, 403)
    assert _ask(up, server, up.password, Origin="https://graphs.example") == 200, "behind a proxy that ends TLS"
    assert _ask(up, server, up.password, Origin="https://evil.example") == 403


@served
def test_the_database_wants_its_password_and_keeps_two_schemas(up: Natively) -> None:
    assert up.sql("select count(*) from public.alembic_version") == "1"
    assert up.sql("select count(*) from mlflow.alembic_version") == "1"
    wrong = ["-h", "127.0.0.1", "-p", str(up.ports["postgres"]), "-U", "graphmill", "-c", "select 1"]
    done = subprocess.run([str(BINARIES[-1] / "psql"), *wrong], env={"PGPASSWORD": "wrong"}, capture_output=True)
    assert b"password authentication failed" in done.stderr


@served
def test_a_recipe_goes_from_the_command_through_worker_and_servers(up: Natively) -> None:
    recipe = write_recipe(up.folder)
    deployed = up.run("graphmill", "deploy", str(recipe), "--name", "tiny")
    assert deployed.returncode == 0, deployed.stderr
    # `prefect` itself goes through the image's entry point too, and is let in.
    ran = up.run("worker", "prefect", "deployment", "run", "train_graph/tiny", "--watch")
    assert ran.returncode == 0, ran.stdout + ran.stderr + up.log("worker")
    auth = ("graphmill", up.password)
    api = f"{up.url('mlflow')}/api/2.0/mlflow"
    found: dict[str, Any] = requests.get(
        f"{api}/registered-models/alias", {"name": "tiny", "alias": "champion"}, auth=auth, timeout=60
    ).json()
    run_id = found["model_version"]["run_id"]
    run = requests.get(f"{api}/runs/get", {"run_id": run_id}, auth=auth, timeout=60).json()["run"]
    assert run["info"]["status"] == "FINISHED"
    assert run["info"]["artifact_uri"].startswith("mlflow-artifacts:"), "through the server, not past it"
    assert list((up.folder / "artifacts").rglob("report.html"))
    links = [
        path for path in up.folder.glob("home/artifacts/publish/*/manifest.json") if "runs.example" in path.read_text()
    ]
    assert links, "links are for browsers"


@served
def test_mlflow_tables_can_be_upgraded(up: Natively) -> None:
    done = up.run("mlflow", "upgrade-mlflow")
    assert done.returncode == 0, done.stderr
    assert (up.secrets / "database_password").read_text() not in done.stdout + done.stderr


@served
def test_no_password_is_on_a_command_line(up: Natively) -> None:
    secrets = [path.read_text() for path in up.secrets.iterdir() if path.read_text()]
    listed = subprocess.run(["ps", "-eo", "args", "-ww"], capture_output=True, text=True, check=True).stdout
    assert str(up.ports["mlflow"]) in listed
    assert not [secret for secret in secrets if secret in listed]


@served
def test_the_password_can_be_changed(up: Natively) -> None:
    """As docker/README.md says; MLflow keeps its copy, and the secret's file alone changes nothing there."""
    change = {"username": "graphmill", "password": "another-long-one", "current_password": up.password}
    url = f"{up.url('mlflow')}/api/2.0/mlflow/users/update-password"
    answer = requests.patch(url, json=change, auth=("graphmill", up.password), timeout=60)
    assert answer.status_code == 200, answer.text
    assert _ask(up, "mlflow", up.password) == 401
    assert _ask(up, "mlflow", "another-long-one") == 200
    back = {**change, "password": up.password, "current_password": "another-long-one"}
    assert requests.patch(url, json=back, auth=("graphmill", "another-long-one"), timeout=60).status_code == 200


@served
def test_a_worker_ends_when_it_is_told_to(up: Natively) -> None:
    process = up.processes["worker"]
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert process.wait(timeout=60) == 0, up.log("worker")
    assert time.monotonic() - began < 55, "within compose's grace period"
