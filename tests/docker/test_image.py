"""What can be said of the image without an engine: the Dockerfile's words, and the scripts that it runs."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from configs.errors import RecipeError
from flows.services.container import client, read_secret, read_settings
from tasks.storage.home import Home
from tests.docker.conftest import DOCKER, entrypoint
from tests.flows.conftest import ROOT, environment

LINES = (DOCKER / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
LAST = LINES[max(number for number, line in enumerate(LINES) if line.startswith("FROM")) :]


def test_the_last_layers_have_no_compiler_and_no_root() -> None:
    installed = re.findall(r"no-install-recommends ([\w .+-]+)", "\n".join(LAST))
    assert [words.split() for words in installed] == [["libgomp1", "tini"]]
    (user,) = [line for line in LAST if line.startswith("USER")]
    assert int(user.split()[1].split(":")[0]) > 0
    assert not [line for line in LAST if line.startswith("RUN") and LAST.index(line) > LAST.index(user)]


def test_the_image_has_a_health_check_and_no_secrets() -> None:
    assert any(line.startswith("HEALTHCHECK") and "flows.services.health" in line for line in LAST)
    assert not re.search(r"(?i)(ARG|ENV)\s+\w*(password|secret|token)", "\n".join(LINES))
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*", "only what is named goes in"
    assert "docker/secrets" in ignored


def test_what_is_written_at_run_time_goes_where_it_can_be_written() -> None:
    (words,) = [line.removeprefix("ENV ") for line in LAST if line.startswith("ENV")]
    given = dict(word.split("=", 1) for word in words.split())
    assert given["GRAPHMILL_HOME"] == "/data"
    written = ("NUMBA_CACHE_DIR", "TRITON_CACHE_DIR", "MPLCONFIGDIR", "PREFECT_SERVER_UI_STATIC_DIRECTORY")
    assert all(given[name].startswith(("/data/", "/tmp/")) for name in written)


def test_all_packages_and_what_is_copied_goes_into_the_image() -> None:
    named = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert {name.split(".")[0] for name in project["tool"]["setuptools"]["packages"]} <= named
    for line in LINES:
        if line.startswith("COPY") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), line
                assert source == "." or source.split("/")[0] in named


def test_secrets_are_made_once_and_for_nobody_else(tmp_path: Path) -> None:
    shutil.copy(DOCKER / "make-secrets.sh", tmp_path)
    for _ in range(2):
        subprocess.run(["bash", tmp_path / "make-secrets.sh"], check=True, capture_output=True)
        folder = tmp_path / "secrets"
        made = {path.name: path.read_text() for path in folder.iterdir()}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert made["prefect_auth"] == f"graphmill:{made['password']}"
    before = made
    subprocess.run(["bash", tmp_path / "make-secrets.sh"], check=True, capture_output=True)
    assert {path.name: path.read_text() for path in folder.iterdir()} == before
    assert len({made[name] for name in ("password", "database_password", "mlflow_secret")}) == 3


def test_triton_gets_what_was_compiled_and_nothing_else_does(tmp_path: Path) -> None:
    """The stand-in for a compiler, called as Triton 3.7 and 3.9 call one."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib" / "triton-driver").mkdir(parents=True)
    (tmp_path / "lib" / "triton-driver" / "cuda_utils.so").write_bytes(b"compiled")
    stand_in = tmp_path / "bin" / "gcc"
    shutil.copy(DOCKER / "cc", stand_in)
    options = ["-O3", "-shared", "-fPIC", "-Wno-psabi", "-o"]
    for source in ("/tmp/x/cuda_utils.c", "/venv/triton/backends/nvidia/driver.c"):
        target = tmp_path / "out.so"
        subprocess.run([stand_in, source, *options, target, "-l:libcuda.so.1", "-L/lib", "-I/usr/include"], check=True)
        assert target.read_bytes() == b"compiled"
        target.unlink()
    other = subprocess.run([stand_in, "other.c", *options, target], capture_output=True, text=True)
    assert other.returncode == 1
    assert "no C compiler" in other.stderr
    assert not target.exists()


def test_a_command_needs_no_servers(tmp_path: Path) -> None:
    """`docker run IMAGE` shows the help; `docker run IMAGE graphmill run quickstart` brings its own server."""
    words = next(line for line in LAST if line.startswith("CMD")).removeprefix("CMD ")
    given = {**environment(), "GRAPHMILL_HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    command = [sys.executable, *entrypoint()[1:], *json.loads(words)]
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Usage: graphmill" in done.stdout
    unknown = subprocess.run([*command[:-2], "serve-prefct"], cwd=ROOT, env=given, capture_output=True, text=True)
    assert unknown.returncode == 2
    assert "did you mean 'serve-prefect'" in unknown.stderr


GIVEN = {"GRAPHMILL_PREFECT_URL": "http://prefect:4200", "GRAPHMILL_MLFLOW_URL": "http://mlflow:5000/"}


def _given(folder: Path, password: str = "a-long-password") -> dict[str, str]:
    (folder / "password").write_text(password + "\n")
    return {**GIVEN, "GRAPHMILL_PASSWORD_FILE": str(folder / "password")}


def test_a_client_is_told_where_the_servers_are(home: Home, tmp_path: Path) -> None:
    values = client(home, _given(tmp_path))
    assert values["PREFECT_API_URL"] == "http://prefect:4200/api"
    assert values["PREFECT_API_AUTH_STRING"] == "graphmill:a-long-password"
    assert values["MLFLOW_TRACKING_URI"] == values["GRAPHMILL_TRACKING"] == "http://mlflow:5000"
    assert values["MLFLOW_TRACKING_PASSWORD"] == "a-long-password"


@pytest.mark.parametrize("password", ["", "short", "with a space in it", "100%-of-everything", "pässwörter-sind-es"])
def test_poor_secrets_are_refused(tmp_path: Path, password: str) -> None:
    with pytest.raises(RecipeError, match=r"GRAPHMILL_PASSWORD_FILE=.*password") as caught:
        read_secret(_given(tmp_path, password), "GRAPHMILL_PASSWORD_FILE")
    assert not password or password not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"GRAPHMILL_PREFECT_URL": "prefect:4200"}, "GRAPHMILL_PREFECT_URL=prefect:4200"),
        ({"GRAPHMILL_MLFLOW_URL": ""}, "GRAPHMILL_MLFLOW_URL is not set"),
        ({"GRAPHMILL_LIMIT": "none"}, "GRAPHMILL_LIMIT='none'"),
        ({"GRAPHMILL_KEEP_RUNS": "1h"}, "GRAPHMILL_KEEP_RUNS 1h: give at least a day"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, change: dict[str, str], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        read_settings({**_given(tmp_path), **change})


_KEEP = """
import sys
from flows.services.commands import Service
from flows.services.supervisor import keep_running
first = Service("first", ["sleep", "4"])
second = Service("second", ["sh", "-c", "echo x >> " + sys.argv[1] + "; exit 7"])
sys.exit(keep_running([first, second]))
"""


def test_what_stands_beside_the_worker_is_started_again(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    done = subprocess.run([sys.executable, "-c", _KEEP, str(starts)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(starts.read_text().split()) >= 2
    assert "second ended with" in done.stdout
