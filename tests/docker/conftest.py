from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.flows.conftest import ROOT, environment
from tests.postgres import BINARIES, USER, cluster_folder

DOCKER = ROOT / "docker"
COMPOSE = DOCKER / "compose.yaml"
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def load_compose(variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the compose file with its variables filled in as `docker compose` does."""
    given = variables or {}
    text = _VARIABLE.sub(lambda match: given.get(match[1]) or match[2] or "", COMPOSE.read_text())
    return yaml.safe_load(text)


def entrypoint() -> list[str]:
    """Return the image's entry point without tini, which only matters to process 1."""
    line = next(line for line in (DOCKER / "Dockerfile").read_text().splitlines() if line.startswith("ENTRYPOINT"))
    words: list[str] = yaml.safe_load(line.removeprefix("ENTRYPOINT "))
    assert words[:2] == ["tini", "--"]
    return words[2:]


@dataclass
class Natively:
    """Services of the compose file as processes of this machine: names, ports and paths are replaced, nothing else."""

    folder: Path
    ports: dict[str, int]
    compose: dict[str, Any] = field(default_factory=load_compose)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    database: Path | None = None

    def __post_init__(self) -> None:
        docker = self.folder / "docker"
        docker.mkdir()
        shutil.copy(DOCKER / "make-secrets.sh", docker)
        subprocess.run(["bash", docker / "make-secrets.sh"], check=True, capture_output=True)
        self.secrets = docker / "secrets"
        for name, place in self.compose["secrets"].items():
            assert (docker / place["file"]).is_file(), name

    @property
    def password(self) -> str:
        return (self.secrets / "password").read_text()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def _here(self, text: str, service: str) -> str:
        for name, port in self.ports.items():
            text = re.sub(rf"(?<=[/@]){name}:\d+", f"127.0.0.1:{port}", text)
        places = {
            "/run/secrets/": f"{self.secrets}/",
            "/tmp/graphmill": str(self.folder / service / "run"),
            "file:///artifacts": (self.folder / "artifacts").as_uri(),
        }
        for place, here in places.items():
            text = text.replace(place, here)
        return text

    def environment(self, service: str, **changes: str) -> dict[str, str]:
        temporary = self.folder / service / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        image = {"GRAPHMILL_HOME": str(self.folder / "home"), "TMPDIR": str(temporary), "PATH": path}
        given = {
            name: self._here(str(value), service)
            for name, value in self.compose["services"][service]["environment"].items()
            # Only what is mounted can be read.
            if "/run/secrets/" not in str(value)
            or Path(str(value)).name in self.compose["services"][service]["secrets"]
        }
        if service in self.ports and "PREFECT_WORKER_WEBSERVER_PORT" in given:
            given["PREFECT_WORKER_WEBSERVER_PORT"] = str(self.ports[service])
        return {**environment(), **image, **given, **changes}

    def command(self, service: str, *arguments: str) -> list[str]:
        """The command that the container runs, or that `docker compose run SERVICE ARGUMENTS` does."""
        content = self.compose["services"][service]
        own = content.get("entrypoint")
        assert own is None or own[:2] == ["tini", "--"]
        words = [*(own[2:] if own else entrypoint()), *(arguments or content["command"])]
        return [sys.executable, *words[1:]] if words[0] == "python" else words

    def run(self, service: str, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(service, *arguments),
            env=self.environment(service, **changes),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=240,
        )

    def start(self, service: str) -> None:
        with self._log(service).open("wb") as log:
            self.processes[service] = subprocess.Popen(
                self.command(service),
                env=self.environment(service),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_until_healthy(self, *services: str, seconds: float = 280.0) -> None:
        deadline = time.monotonic() + seconds
        for service in services:
            check = self.compose["services"][service]["healthcheck"]["test"]
            assert check[:2] == ["CMD", "python"]
            while True:
                asked = subprocess.run(
                    [sys.executable, *check[2:]], env=self.environment(service), cwd=ROOT, capture_output=True
                )
                if asked.returncode == 0:
                    break
                if self.processes[service].poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"{service}: {asked.stdout!r}\n{self.log(service)}")
                time.sleep(0.5)

    def _log(self, service: str) -> Path:
        return self.folder / f"{service}.log"

    def log(self, service: str) -> str:
        return self._log(service).read_text()[-4000:]

    def start_postgres(self) -> None:
        """Do what the image's entry point does: a cluster, a user with a password, a database, then the command."""
        service = self.compose["services"]["postgres"]
        given = self.environment("postgres")
        data = self.database = cluster_folder()
        tools, port = BINARIES[-1], str(self.ports["postgres"])
        make = [tools / "initdb", "-D", data / "data", "-U", given["POSTGRES_USER"], "--auth=trust"]
        make += [
            f"--pwfile={self._readable(Path(given['POSTGRES_PASSWORD_FILE']), data)}",
            given["POSTGRES_INITDB_ARGS"],
        ]
        subprocess.run(make, user=USER, check=True, capture_output=True)
        command = [str(tools / service["command"][0]), *service["command"][1:], "-D", str(data / "data")]
        command += ["-p", port, "-k", "", "-c", "listen_addresses=127.0.0.1"]
        with self._log("postgres").open("wb") as log:
            self.processes["postgres"] = subprocess.Popen(command, user=USER, stdout=log, stderr=log)
        ready = [str(tools / "pg_isready"), *service["healthcheck"]["test"][2:], f"--port={port}"]
        deadline = time.monotonic() + 60
        while subprocess.run(ready, capture_output=True).returncode:
            assert time.monotonic() < deadline, self.log("postgres")
            time.sleep(0.1)
        database = f"CREATE DATABASE {given['POSTGRES_DB']}"
        self.sql(database, database="postgres")

    def _readable(self, secret: Path, folder: Path) -> Path:
        """Copy a secret to where PostgreSQL's user may read it, as the mount in the container does."""
        copy = folder / "secret"
        copy.write_text(secret.read_text())
        copy.chmod(0o444)
        return copy

    def sql(self, statement: str, database: str = "graphmill") -> str:
        address = ["-h", "127.0.0.1", "-p", str(self.ports["postgres"]), "-U", "graphmill", "-d", database]
        done = subprocess.run(
            [str(BINARIES[-1] / "psql"), *address, "-tAc", statement],
            env={**os.environ, "PGPASSWORD": (self.secrets / "database_password").read_text()},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def stop(self) -> None:
        for process in reversed(self.processes.values()):
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self.database is not None:
            shutil.rmtree(self.database)
