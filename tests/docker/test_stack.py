"""The whole of compose.yaml by an engine: docker-compose over podman's socket, with README's commands."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from tests.docker.conftest import COMPOSE, DOCKER
from tests.docker.engine import (
    ENVIRONMENT,
    assert_equal,
    base_image,
    earlier_image,
    epochs,
    in_containers,
    own_image,
    podman,
    postgres_image,
    wait_for,
)
from tests.flows.conftest import TINY, write_recipe
from tests.needs import skip_without
from tests.ports import free_ports

pytestmark = pytest.mark.slow
EARLIER = "38b50a30"
"""The commit before machines became those of a Ray cluster: stored recipes name options that are gone."""
SERVICES = ("postgres", "prefect", "mlflow", "worker")
_LONG: dict[str, Any] = {
    "dataset": {**TINY["dataset"], "num_nodes": 4000, "num_edges": 20000},
    "train": {
        "loader": {"name": "neighbor", "fanout": [5, 5], "batch_size": 32},
        "epochs": 40,
        "threads": 1,
        "checkpoint_minutes": 0.02,
    },
}


class Stack:
    """Services of compose.yaml; a context."""

    def __init__(self, folder: Path, project: str, image: str) -> None:
        self.folder, self.project, docker = folder, project, folder / "docker"
        self.input = folder / "input"
        self.input.mkdir(mode=0o755)
        docker.mkdir()
        (docker / "compose.yaml").write_text(COMPOSE.read_text().replace("name: graphmill\n", ""))
        shutil.copy(DOCKER / "make-secrets.sh", docker)
        subprocess.run(["bash", docker / "make-secrets.sh"], check=True, capture_output=True)
        self.auth = ("graphmill", (docker / "secrets" / "password").read_text())
        ports = [str(port) for port in free_ports(2)]
        self.prefect, self.mlflow = (f"http://127.0.0.1:{port}" for port in ports)
        self.environment = {
            **ENVIRONMENT,
            **{"DOCKER_HOST": f"unix://{folder}/socket", "COMPOSE_PROJECT_NAME": project, "GRAPHMILL_IMAGE": image},
            **{"GRAPHMILL_PREFECT_PORT": ports[0], "GRAPHMILL_MLFLOW_PORT": ports[1], "COMPOSE_HTTP_TIMEOUT": "600"},
            **{"POSTGRES_IMAGE": postgres_image(), "GRAPHMILL_INPUT": str(self.input)},
        }
        self._ended = threading.Event()

    def __enter__(self) -> Stack:
        self._service = subprocess.Popen(
            ["podman", "system", "service", "--time=0", self.environment["DOCKER_HOST"]], env=ENVIRONMENT
        )
        self._health = threading.Thread(target=self._look)
        self._health.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._health.join()
        self("down", "--volumes", ok=None)
        self._service.terminate()
        self._service.wait()

    def _look(self) -> None:
        """Do what systemd's timers do for podman's health checks."""
        while not self._ended.wait(3):
            names = podman("ps", f"--filter=name={self.project}_", "--format={{.Names}}", ok=None).stdout.split()
            for name in names:
                podman("healthcheck", "run", name, ok=None)

    def __call__(self, *words: str, ok: bool | None = True, **options: Any) -> subprocess.CompletedProcess[str]:
        words = ("docker-compose", *words)
        options = {"timeout": 900, "env": self.environment, "text": True, "capture_output": True, **options}
        done = subprocess.run(words, cwd=self.folder / "docker", **options)
        assert ok is None or (done.returncode == 0) == ok, f"{words} {done.stdout}\n{done.stderr}\n{self.said()}"
        return done

    def said(self) -> str:
        said = [(name, podman("logs", "--tail=20", f"{self.project}_{name}_1", ok=None)) for name in SERVICES]
        return "\n".join(f"--- {name}\n{done.stdout}{done.stderr}" for name, done in said)

    def graphmill(self, *words: str) -> str:
        return self("run", "--rm", "-T", "graphmill", *words).stdout

    def up(self) -> None:
        self("up", "--detach", "--no-build")
        wait_for(lambda: self("ps").stdout.count("(healthy)") == len(SERVICES))

    def volume(self, name: str) -> Path:
        where = podman("volume", "inspect", "--format={{.Mountpoint}}", f"{self.project}_{name}")
        return Path(where.stdout.strip())

    def api(self, path: str, body: Any = None) -> Any:
        with requests.Session() as session:
            session.auth, url = self.auth, f"{self.prefect}/api/"
            if body is None:
                answer = session.get(url + path, timeout=60)
            else:
                token = session.get(f"{url}csrf-token?client=tests", timeout=60).json()["token"]
                session.headers.update({"Prefect-Csrf-Client": "tests", "Prefect-Csrf-Token": token})
                answer = session.post(url + path, json=body, timeout=60)
        assert answer.ok, answer.text
        return answer.json()

    def start(self, deployment: str) -> str:
        found = self.api(f"deployments/name/train_graph/{deployment}")
        return str(self.api(f"deployments/{found['id']}/create_flow_run", {"state": {"type": "SCHEDULED"}})["id"])

    def wait(self, run: str, seconds: float = 900.0) -> None:
        """See that a run ends well, through servers that come and go."""

        def state() -> str:
            try:
                return str(self.api(f"flow_runs/{run}")["state_type"])
            except (requests.ConnectionError, requests.Timeout, AssertionError):
                return "AWAY"

        final = wait_for(lambda: (now := state()) in ("COMPLETED", "FAILED", "CANCELLED") and now, seconds)
        assert final == "COMPLETED", self.said()

    def versions(self, model: str) -> list[str]:
        url = f"{self.mlflow}/api/2.0/mlflow/model-versions/search"
        answer = requests.get(url, {"filter": f"name='{model}'"}, auth=self.auth, timeout=60)
        return [found["run_id"] for found in answer.json().get("model_versions", [])]

    def forget(self, kept: Path | None = None) -> None:
        """Have the next run train again; `kept`: a folder for what the last one has trained."""
        for stage in ("train", "evaluate", "publish"):
            folder = self.volume("home") / "artifacts" / stage
            if kept and stage == "train":
                shutil.copytree(folder, kept / "artifacts" / stage)
            shutil.rmtree(folder, ignore_errors=True)

    def deploy_long(self) -> None:
        write_recipe(self.input, name="long", **_LONG).rename(self.input / "long.yaml")
        self.graphmill("deploy", "/input/long.yaml", "--name", "long")


@in_containers
def test_an_upgrade_with_a_run_half_done(tmp_path: Path) -> None:
    compose = shutil.which("docker-compose")
    skip_without("docker-compose", compose)
    with Stack(tmp_path, "gmearlier", earlier_image(EARLIER, tmp_path / "earlier")) as stack:
        stack.up()
        stack.deploy_long()
        run = stack.start("long")
        wait_for(lambda: epochs(stack.volume("home")) >= 3)
        stack("stop", "worker", "mlflow")  # docker-compose would link the next one to it, which podman does not know
        assert 3 <= epochs(stack.volume("home")) < _LONG["train"]["epochs"]
        stack.environment["GRAPHMILL_IMAGE"] = own_image()
        stack("run", "--rm", "-T", "mlflow", "upgrade-mlflow")
        stack.up()
        stack.wait(run)
        stack.forget(tmp_path / "went-on")
        stack.wait(stack.start("long"))
        assert_equal(stack.volume("home"), tmp_path / "went-on")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    compose = shutil.which("docker-compose")
    skip_without("docker-compose", compose)
    with Stack(tmp_path_factory.mktemp("stack"), "gmtest", own_image()) as stack:
        stack.up()
        yield stack


@in_containers
def test_commands_of_the_readme(stack: Stack) -> None:
    cron = ("--cron", "0 3 * * *", "--timezone", "Europe/Berlin")
    stack.graphmill("deploy", "quickstart", "--name", "nightly", *cron)
    assert "0 3 * * * Europe/Berlin" in stack.graphmill("deployments", "--json")
    stack.wait(stack.start("nightly"))
    assert len(stack.versions("quickstart")) == 1
    assert "Completed" in stack("logs", "worker").stdout
    for server in (stack.prefect + "/api/admin/version", stack.mlflow + "/"):
        assert requests.get(server, timeout=60).status_code == 401
    reach = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"
    assert "not known" in stack("exec", "-T", "worker", "python", "-c", reach, "postgres", "5432", ok=False).stderr


def write_day(folder: Path, day: int) -> None:
    """Accounts and payments until a day: each day brings more of both."""
    draw, count = random.Random(day), 300 + 60 * day
    kinds = [draw.choice(["shop", "person"]) for _ in range(count)]
    nodes = [f"{i},{draw.gauss(kind == 'shop', 1):.4f},{kind}" for i, kind in enumerate(kinds)]
    edges = [f"{draw.randrange(count)},{draw.randrange(count)}" for _ in range(5 * count)]
    (folder / "nodes.csv").write_text("\n".join(["id,balance,kind", *nodes]))
    (folder / "edges.csv").write_text("\n".join(["payer,payee", *edges]))


@in_containers
def test_a_nightly_deployment_on_three_changing_days(stack: Stack) -> None:
    nodes = {"files": "/input/nodes.csv", "id": "id", "features": ["balance"], "label": ["kind"]}
    edges = {"files": "/input/edges.csv", "source": "payer", "target": "payee"}
    task = {"task": "node", "task_type": "multiclass", "split": {"by": "stratified", "train": 0.6, "valid": 0.2}}
    dataset = {"name": "tables", "title": "accounts", **task, "nodes": nodes, "edges": edges}
    write_day(stack.input, 1)
    recipe = {**TINY, "name": "accounts", "dataset": dataset}
    (stack.input / "accounts.yaml").write_text(yaml.safe_dump(recipe))
    stack.graphmill("deploy", "/input/accounts.yaml", "--name", "daily", "--cron", "0 3 * * *")
    for day in (1, 2, 3):
        write_day(stack.input, day)
        stack.wait(stack.start("daily"))
        assert len(stack.versions("accounts")) == day
    stack.wait(stack.start("daily"))
    assert len(stack.versions("accounts")) == 3, "a night without new data trains nothing"


@in_containers
def test_each_container_is_killed_while_a_run_trains(stack: Stack, tmp_path: Path) -> None:
    stack.forget()
    stack.deploy_long()
    stack.wait(stack.start("long"))
    for number, service in enumerate(SERVICES):
        stack.forget(None if number else tmp_path)
        run = stack.start("long")
        wait_for(lambda: epochs(stack.volume("home")) >= 3)
        found = podman("inspect", "--format={{.State.Pid}}", f"{stack.project}_{service}_1")
        os.kill(int(found.stdout), signal.SIGKILL)
        stack.wait(run)
        assert_equal(stack.volume("home"), tmp_path)
        wait_for(lambda: stack("ps").stdout.count("(healthy)") == len(SERVICES))


@in_containers
def test_backup_and_restore(stack: Stack) -> None:
    """As docker/README.md says, with podman's volumes."""
    kept = stack.versions("long") + stack.versions("quickstart")
    dump, files = stack.folder / "graphmill.dump", f"--volume={stack.folder}:/files"
    artifacts = f"--volume={stack.project}_artifacts:/artifacts"
    with dump.open("wb") as out:
        save = ("exec", "-T", "postgres", "pg_dump", "--username", "graphmill", "--format", "custom", "graphmill")
        stack(*save, stdout=out, capture_output=False)
    podman("run", "--rm", artifacts, files, base_image(), "tar", "-C", "/artifacts", "-czf", "/files/a.tar.gz", ".")
    stack("down", "--volumes")
    stack("up", "--detach", "postgres")
    wait_for(lambda: stack("ps").stdout.count("(healthy)") == 1)
    with dump.open("rb") as saved:
        restore = ("pg_restore", "--username", "graphmill", "--dbname", "graphmill", "--clean", "--if-exists")
        stack("exec", "-T", "postgres", *restore, stdin=saved)
    stack("create", ok=None)
    podman("run", "--rm", artifacts, files, base_image(), "tar", "-C", "/artifacts", "-xzf", "/files/a.tar.gz")
    stack.up()
    assert stack.versions("long") + stack.versions("quickstart") == kept
    assert len(stack.api("deployments/filter", {})) == 3
    for run in kept:
        found = f"{stack.mlflow}/api/2.0/mlflow-artifacts/artifacts?path=0"
        assert requests.get(found, auth=stack.auth, timeout=60).ok, run
    stack.wait(stack.start("nightly"))
