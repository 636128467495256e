"""What a worker says of an error, and what is said of one that died."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from configs.errors import DataError, IntegrityError, StageError
from configs.load import load_recipe
from tasks.processes.children import MACHINE
from tasks.stage import StageContext
from tasks.storage.artifacts import output_errors
from tasks.storage.home import Home
from tasks.storage.home_files.caching import PickleCache
from tasks.supervise import finish_job, run_job, run_worker
from tasks.train.ranks.launch import launcher_of


@dataclass
class Nothing:
    """A job."""


@pytest.mark.parametrize("kind", [DataError, IntegrityError, StageError])
def test_errors_of_graphmill_s_own_reach_who_asked_without_a_traceback(tmp_path: Path, kind: type[Exception]) -> None:
    def fail(job: Nothing) -> dict[str, Any]:
        raise kind("weights are cut")

    (tmp_path / "job.json").write_text("{}")
    assert finish_job(tmp_path / "job.json", Nothing, fail) == 0
    told = json.loads((tmp_path / "result.json").read_text())
    assert told == {"error": kind.__name__, "message": "weights are cut"}


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("raise LookupError('it was here yesterday')", r"exit code 1; it said last:(.|\n)*it was here yesterday"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
    ],
)
def test_a_worker_that_died_is_named_with_its_last_words(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch, end: str, said: str
) -> None:
    (tmp_path / "dying.py").write_text(f"def main(path):\n    {end}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    context = StageContext("evaluate", tmp_path, home, PickleCache(home))
    with pytest.raises(StageError, match=f"evaluate ended with .*{said}"):
        run_worker("dying", tmp_path, context)


def of_a_module(folder: Path, home: Home, name: str, job: str, monkeypatch: pytest.MonkeyPatch) -> StageContext:
    """Write a module whose worker does a job, where workers find it."""
    (folder / f"{name}.py").write_text(
        f"import errno, os\nfrom tasks.supervise import finish_job\nfrom tests.test_supervise import Nothing\n{job}\n"
        "def main(path):\n    return finish_job(path, Nothing, work)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return StageContext("evaluate", folder, home, PickleCache(home))


def test_a_worker_whose_disk_is_full_says_so_without_a_file_that_has_no_room(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = "def work(job):\n    raise OSError(errno.ENOSPC, 'No space left on device')"
    context = of_a_module(tmp_path, home, "full", full, monkeypatch)
    output = tmp_path / "vectors.npy"
    with (
        pytest.raises(
            StageError, match=r"--output .*vectors\.npy is not written: the disk that holds .* is full \(\d+ MB"
        ),
        output_errors(output),
    ):
        run_job("full", Nothing(), context)


def test_a_worker_is_no_rank_of_a_job_around_the_command(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = of_a_module(tmp_path, home, "looks", "def work(job): return {'has': sorted(os.environ)}", monkeypatch)
    of_a_rank = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID", MACHINE)
    for name in of_a_rank:
        monkeypatch.setenv(name, "3")
    found = run_job("looks", Nothing(), context)["has"]
    assert "PYTHONPATH" in found
    assert not set(of_a_rank) & set(found)
    launcher = launcher_of(load_recipe("quickstart", ["train.num_ranks=2"]), home, tmp_path)
    assert not set(of_a_rank) & set(launcher.environment)
