"""Slurm of Debian in three containers: the batch script of docs/pages/machines.md, as it stands there."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.docker.engine import LIMITS, assert_equal, epochs, in_containers, own_image, podman, wait_for
from tests.docker.test_machines import IN_PARTS
from tests.flows.conftest import ROOT

pytestmark = pytest.mark.slow
_NODES = [f"gmtest-s{number}" for number in range(3)]
_IMAGE = "localhost/graphmill-test/slurm"
_CONTAINERFILE = """
FROM {base}
USER root
RUN apt-get update -q && apt-get install -y -q --no-install-recommends munge slurmctld slurmd slurm-client openssl \
    && install -d -o munge -g munge /run/munge && install -d /var/spool/slurmctld /var/spool/slurmd
COPY slurm.conf cgroup.conf /etc/slurm/
ENTRYPOINT ["tini", "--", "sh", "-c"]
"""
_CONF = """
ClusterName=graphmill
SlurmctldHost=gmtest-s0
SlurmUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
PropagateResourceLimits=NONE
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmdParameters=config_overrides
AuthInfo=cred_expire=20
ReturnToService=2
NodeName=gmtest-s[0-2] CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
_START = "setpriv --reuid=munge --regid=munge --clear-groups munged && {head} exec slurmd -D"
_HOME = "/home/graphmill"
"""On all nodes, as the page asks."""


def page_script() -> str:
    """Return the page's script with this cluster's sizes and places."""
    page = (ROOT / "docs" / "pages" / "machines.md").read_text()
    (script,) = re.findall(r"```bash\n(#!/bin/bash\n#SBATCH.*?)```", page, re.DOTALL)
    return re.sub(r"\b8\b", "1", script).replace("/shared/home", f"{_HOME}/home").replace("my-graph", "parts")


def node(number: int, *words: str, ok: bool | None = True) -> str:
    """Run a command on a node as the user of its jobs."""
    return podman("exec", "--user=graphmill", f"--workdir={_HOME}", _NODES[number], *words, ok=ok).stdout


def admin(*words: str, ok: bool | None = True) -> str:
    return podman("exec", _NODES[0], *words, ok=ok).stdout


def _remove() -> None:
    podman("rm", "--force", "--time=2", *_NODES, ok=None)
    podman("volume", "rm", "--force", "gmtest-shared", ok=None)
    podman("network", "rm", "--force", "gmtest-slurm", ok=None)


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """A cluster; return the folder that its nodes share."""
    with tempfile.TemporaryDirectory() as folder:
        files = {"Containerfile": _CONTAINERFILE.format(base=own_image()), "slurm.conf": _CONF}
        for name, text in {**files, "cgroup.conf": "CgroupAutomount=no\n"}.items():
            (Path(folder) / name).write_text(text)
        podman("build", "--network=host", *LIMITS, f"--tag={_IMAGE}", folder)
    _remove()
    podman("network", "create", "gmtest-slurm")
    try:
        for name in _NODES:
            own = (f"--name={name}", f"--hostname={name}", "--network=gmtest-slurm", "--shm-size=1g")
            start = _START.format(head="slurmctld &&" if name == _NODES[0] else "")
            podman("run", "--detach", *own, f"--volume=gmtest-shared:{_HOME}", _IMAGE, start)
        where = podman("volume", "inspect", "--format={{.Mountpoint}}", "gmtest-shared").stdout.strip()
        node(0, "sh", "-c", "umask 077; mkdir -p ~/.ray; openssl rand -hex 32 > ~/.ray/auth_token")
        (Path(where) / "parts.yaml").write_text(yaml.safe_dump(IN_PARTS))
        (Path(where) / "job.sh").write_text(page_script())
        wait_for(lambda: len(admin("sinfo", "--noheader", "--Node", "--states=idle", ok=None).splitlines()) == 3)
        yield Path(where)
    finally:
        _remove()


def submit(*options: str) -> str:
    return node(0, "sbatch", "--parsable", *options, "job.sh").strip()


def state(job: str) -> str:
    found = re.search(r"JobState=(\w+)", admin("scontrol", "show", "job", job))
    assert found
    return found[1]


def wait_until_complete(shared: Path, job: str) -> None:
    ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
    wait_for(lambda: state(job) in ended, 900)
    said = (shared / f"slurm-{job}.out").read_text().splitlines()
    assert state(job) == "COMPLETED", "\n".join(
        line for line in said if "raylet" not in line and "scripts.py" not in line
    )


@in_containers
def test_the_script_of_the_page_and_a_node_that_is_drained(shared: Path) -> None:
    job = submit()
    wait_for(lambda: epochs(shared / "home") >= 2 or state(job) not in ("PENDING", "RUNNING"), 600)
    admin("scontrol", "update", f"NodeName={_NODES[1]}", "State=DRAIN", "Reason=memory")
    wait_until_complete(shared, job)
    next_one = submit()
    assert state(next_one) == "PENDING"
    assert "drained" in admin("sinfo", "--noheader", "--nodes", _NODES[1], "--format=%T")
    admin("scontrol", "update", f"NodeName={_NODES[1]}", "State=RESUME")
    wait_until_complete(shared, next_one)
    for number in range(3):
        assert not re.search(
            "raylet|gcs_server|graphmill", node(number, "sh", "-c", "cat /proc/[0-9]*/cmdline", ok=None)
        )


@in_containers
def test_a_job_that_runs_out_of_time_goes_on(shared: Path) -> None:
    (first,) = (shared / "home").glob("artifacts/train/*")
    (shared / "first" / "artifacts" / "train").mkdir(parents=True)
    first.rename(shared / "first" / "artifacts" / "train" / "x")
    job = submit("--time=20")
    wait_for(lambda: epochs(shared / "home") >= 3, 600)
    minutes = int(admin("squeue", "--noheader", "--format=%M").split(":")[-2])
    admin("scontrol", "update", f"JobId={job}", f"TimeLimit={minutes + 2}")
    wait_for(lambda: "Restarts=1" in admin("scontrol", "show", "job", job))
    admin("scontrol", "update", f"JobId={job}", "TimeLimit=20")
    wait_until_complete(shared, job)
    assert_equal(shared / "home", shared / "first")
