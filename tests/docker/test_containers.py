"""The image by an engine: it is built as docker/Dockerfile says, and quickstart runs in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.docker.engine import CONFINED, in_containers, own_image, podman

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def image() -> str:
    return own_image()


@pytest.fixture
def volume() -> Iterator[str]:
    """A new volume for /data; the engine gives it the owner that the image names."""
    name = "graphmill-test-quickstart"
    podman("volume", "rm", "--force", name)
    yield f"--volume={name}:/data"
    podman("volume", "rm", "--force", name)


@in_containers
def test_the_image_is_read_only_and_nobodys(image: str, volume: str) -> None:
    ask = "id -u; grep CapEff /proc/self/status; touch /app/x /opt/venv/x; command -v gcc; ls -ld /data; ls /app/docker"
    said = podman("run", "--rm", *CONFINED, volume, image, "sh", "-c", ask)
    assert re.match(r"10001\nCapEff:\s+0+\ndrwx------ \S+ graphmill graphmill .* /data\n", said.stdout)
    assert said.stderr.count("Read-only file system") == 2
    assert "secrets" not in said.stdout.split()


@in_containers
def test_quickstart_runs_in_the_image(image: str, volume: str) -> None:
    run = ("run", "--rm", *CONFINED, "--network=none", volume, image, "graphmill")
    first = podman(*run, "run", "quickstart")
    assert "champion" in first.stdout
    podman(*run, "run", "quickstart", "train.num_ranks=2", "train.threads=1")
    assert podman(*run, "runs", "--json").stdout.count('"completed"') == 2
