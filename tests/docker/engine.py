"""Images and containers by podman: graphmill's image as docker/Dockerfile says, and a PostgreSQL beside it."""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tasks.train.job import BEST
from tests.flows.conftest import ROOT
from tests.needs import needs
from tests.train.test_training import records, weights

ENVIRONMENT = {**os.environ, "CONTAINERS_CONF": str(Path(__file__).with_name("containers.conf"))}
_AS_ROOT = shutil.which("podman") and shutil.which("debootstrap") and os.geteuid() == 0
_BASE, _POSTGRES_BASE = "docker.io/library/python:3.11-slim-bookworm", "docker.io/library/postgres:15-bookworm"
LIMITS = ("--ulimit=nofile=4096:4096", "--ulimit=nproc=4000:4000")
"""Builds do not read those of the file."""
CONFINED = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--tmpfs=/tmp:mode=1777")
"""What compose.yaml asks for."""


def in_containers(test: Any) -> Any:
    """Mark tests that take minutes, and podman with root's rights."""
    return pytest.mark.slow(pytest.mark.timeout(3600)(needs("podman, as root", _AS_ROOT, "make containers")(test)))


def podman(*words: str, ok: bool | None = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run podman; `ok`: how it must end."""
    options = {"timeout": 600, "env": ENVIRONMENT, **options}
    done = subprocess.run(["podman", *words], capture_output=True, text=True, **options)
    assert ok is None or (done.returncode == 0) == ok, f"{words}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done


def wait_for(what: Callable[[], Any], seconds: float = 300.0) -> Any:
    """Return what is found, once something is."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, what
        time.sleep(0.2)
    return found


def assert_equal(one: Path, other: Path) -> None:
    """Two homes, each with one training: its epochs are equal and its weights, to the last bit."""
    (ours,), (theirs,) = (list(home.glob("artifacts/train/*")) for home in (one, other))
    assert records(ours) == records(theirs)
    here, there = weights(ours, BEST), weights(theirs, BEST)
    assert not [name for name in there if not torch.equal(here[name], there[name])]


def epochs(home: Path) -> int:
    """Return how many epochs the training that is under way in a home has measured."""
    found = list(home.glob("work/train-*/metrics.jsonl"))
    return found[0].read_text().count('"valid/') if found else 0


def _has(image: str) -> bool:
    return not podman("image", "exists", image, ok=None).returncode


def _pulled(image: str) -> bool:
    return _has(image) or not podman("pull", "--quiet", image, ok=None).returncode


@functools.cache
def base_image() -> str:
    """Return Python's image; where no registry is reached, Debian's Python on what debootstrap makes."""
    own = "localhost/graphmill-test/base"
    if _pulled(_BASE):
        return _BASE
    if not _has(own):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            packages = "--include=ca-certificates,python-is-python3,python3-venv"
            subprocess.run(["debootstrap", "--variant=minbase", packages, "bookworm", folder], check=True)
            with subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE) as tar:
                podman("import", "-", own, stdin=tar.stdout)
            assert tar.returncode == 0
    return own


@contextlib.contextmanager
def _as_pip_here() -> Iterator[list[str]]:
    """What mounts this machine's settings of pip: one file of all, and the files and folders that they name."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    pairs = (line.partition("=") for line in listed.stdout.splitlines())
    settings = {name.rpartition(".")[2]: ast.literal_eval(value) for name, _, value in pairs}
    named = [Path(word.removeprefix("file://")) for value in settings.values() for word in value.split()]
    places = {path.parent if path.name == "simple" else path for path in named if path.is_absolute() and path.exists()}
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write("\n".join(["[global]", *(f"{name} = {value}" for name, value in settings.items())]))
        file.flush()
        os.chmod(file.name, 0o644)  # noqa: PTH101
        yield [f"--volume={file.name}:/etc/pip.conf:ro", *(f"--volume={place}:{place}:ro" for place in sorted(places))]


@functools.cache
def own_image() -> str:
    """Return the image of these sources, or the one that GRAPHMILL_TEST_IMAGE names."""
    return os.environ.get("GRAPHMILL_TEST_IMAGE") or _build("localhost/graphmill-test/graphmill", ROOT)


def _build(image: str, sources: Path) -> str:
    """Build graphmill's image; layers of an earlier build are taken again."""
    with _as_pip_here() as mounts:
        podman(
            *("build", "--format=docker", "--network=host", *LIMITS, *mounts),
            *(f"--build-arg=PYTHON_IMAGE={base_image()}", f"--file={sources / 'docker/Dockerfile'}", f"--tag={image}"),
            str(sources),
            timeout=3000,
        )
    return image


def earlier_image(commit: str, folder: Path) -> str:
    """Build the image of an earlier commit."""
    folder.mkdir()
    with subprocess.Popen(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE) as archive:
        subprocess.run(["tar", "-C", folder, "-x"], stdin=archive.stdout, check=True)
    assert archive.returncode == 0
    return _build(f"localhost/graphmill-test/earlier:{commit}", folder)


_POSTGRES = """
FROM {base}
RUN apt-get update -q && apt-get install -y -q --no-install-recommends postgresql-15 && rm -r /var/lib/postgresql/15
ENV LANG=C.UTF-8 PATH=/usr/lib/postgresql/15/bin:/usr/bin:/bin PGDATA=/var/lib/postgresql/data
COPY postgres.sh /
VOLUME /var/lib/postgresql/data
ENTRYPOINT ["sh", "/postgres.sh"]
"""


@functools.cache
def postgres_image() -> str:
    """Return PostgreSQL's image; where no registry is reached, Debian's package with as much of an entry point."""
    own = "localhost/graphmill-test/postgres"
    if _pulled(_POSTGRES_BASE):
        return _POSTGRES_BASE
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Containerfile").write_text(_POSTGRES.format(base=base_image()))
        shutil.copy(Path(__file__).with_name("postgres.sh"), folder)
        podman("build", "--network=host", *LIMITS, f"--tag={own}", folder)
    return own
