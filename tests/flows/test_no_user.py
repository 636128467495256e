"""A uid without a name or a home, as containers have: `docker run -u`, OpenShift."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.flows.conftest import ROOT

AsNobody = Callable[..., subprocess.CompletedProcess[str]]

# A Python below /root is for its owner's eyes only: seen from the namespace it lies there alone.
_SCRIPT = f"""
set -e
case {sys.base_prefix} in /root/*)
  mount --bind {sys.base_prefix} "$PYTHON"; mount -t tmpfs -o mode=755 none /root
  mkdir -p {sys.base_prefix}; mount --bind "$PYTHON" {sys.base_prefix};;
esac
exec setpriv --reuid=23456 --regid=23456 --clear-groups env -i PATH=/usr/bin:/bin PYTHONPATH={ROOT} $GIVEN "$@"
"""
# What asks for a user's name or home, most of it at its import.
_LIBRARIES = """
import getpass, os, sys
from pathlib import Path
from tasks.storage.home import Home
Home.open("home")
import prefect.settings, matplotlib.font_manager, mlflow, torch._inductor.runtime.runtime_utils as inductor
inductor.default_cache_dir()
print(getpass.getuser(), Path.home())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    found = Path(tempfile.mkdtemp(prefix="graphmill-nobody-", dir="/tmp"))
    found.chmod(0o777)
    yield found
    shutil.rmtree(found)


@pytest.fixture
def as_nobody(folder: Path, tmp_path: Path) -> AsNobody:
    if os.geteuid() or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("nobody else may be acted here")
    if any(not place.stat().st_mode & 0o001 for place in (ROOT, *ROOT.parents)):
        pytest.skip(f"{ROOT} is not for all to read")

    def run(*command: str, given: str = "") -> subprocess.CompletedProcess[str]:
        start = ["unshare", "--mount", "bash", "-c", _SCRIPT, "as-nobody"]
        environment = {**os.environ, "PYTHON": str(tmp_path), "GIVEN": given}
        return subprocess.run(
            [*start, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=280
        )

    return run


def test_the_home_of_a_user_without_one_is_for_nobody_else(as_nobody: AsNobody, folder: Path) -> None:
    for given in ("HOME=/", "HOME=/nowhere"):
        done = as_nobody(sys.executable, "-m", "flows.cli", "--home", "x/mine", "runs", given=given)
        assert done.returncode == 0, done.stderr
        assert stat.S_IMODE((folder / "x" / "mine").stat().st_mode) == 0o700
        shutil.rmtree(folder / "x")


@pytest.mark.parametrize("home", ["s3://bucket/x", "q?x", "~nobody-here/x"])
def test_nothing_is_made_for_a_home_that_is_refused(as_nobody: AsNobody, folder: Path, home: str) -> None:
    done = as_nobody(sys.executable, "-m", "flows.cli", "runs", "--home", home, given="HOME=/nowhere")
    assert done.returncode == 2, done.stderr
    assert not list(folder.iterdir())


@pytest.mark.parametrize(("given", "home"), [("", "user"), ("HOME=/", "user"), ("HOME=/nowhere", "user")])
def test_libraries_find_a_name_and_a_home(as_nobody: AsNobody, folder: Path, given: str, home: str) -> None:
    done = as_nobody(sys.executable, "-c", _LIBRARIES, given=given)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["uid-23456", str(folder / "home" / home)]


def test_a_command_that_opens_no_home_compiles_kernels(as_nobody: AsNobody, folder: Path) -> None:
    np.save(folder / "v.npy", np.eye(4, dtype=np.float32))
    pq.write_table(pa.table({"id": [0, 1, 2, 3]}), folder / "v.ids.parquet")
    for given in ("", "HOME=/"):
        done = as_nobody(
            sys.executable, "-m", "flows.cli", "neighbors", "-e", "v.npy", "--node", "3", "-k", "2", given=given
        )
        assert done.returncode == 0, done.stderr
