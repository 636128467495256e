"""Temporary files of a run and its children lie below its home, and never stay there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from flows.commands.installation.clean import clean_home
from tasks.storage.home import Home
from tasks.storage.home_files.temporary import PREFIX, temporary_folder

ROOT = Path(__file__).resolve().parent.parent
MAKE = "import tempfile; print(tempfile.mkdtemp(), flush=True)"
HOLD = f"""
import sys, time
from tasks.storage.home import Home
from tasks.storage.home_files.temporary import temporary_folder
with temporary_folder(Home.open(sys.argv[1])):
    {MAKE}
    time.sleep(600)
"""


def made_by_a_child() -> Path:
    return Path(subprocess.run([sys.executable, "-c", MAKE], capture_output=True, text=True, check=True).stdout.strip())


def left(home: Home) -> list[str]:
    places = [*home.work.glob(f"{PREFIX}*"), *home.locks.glob(f"{PREFIX}*")]
    return [path.name for path in places]


def test_files_of_the_process_and_its_children_go_with_the_block(home: Home) -> None:
    before = tempfile.gettempdir(), os.environ.get("TMPDIR")
    with temporary_folder(home):
        own, child = Path(tempfile.mkdtemp()), made_by_a_child()
        assert own.parent == child.parent
        assert own.parent.parent == home.work
        assert own.parent.stat().st_mode & 0o777 == 0o700
        with temporary_folder(home):
            assert Path(tempfile.mkdtemp()).parent == own.parent
        assert own.exists(), "an inner block shares the outer one's folder"
    assert not own.parent.exists()
    assert left(home) == []
    assert (tempfile.gettempdir(), os.environ.get("TMPDIR")) == before


def test_they_go_where_the_block_fails(home: Home) -> None:
    def fail() -> None:
        with temporary_folder(home):
            tempfile.mkstemp()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert left(home) == []


@pytest.mark.parametrize("by", ["the next run", "clean"])
def test_those_of_a_killed_process_go_later_and_those_of_a_living_one_stay(home: Home, by: str) -> None:
    def others() -> None:
        if by == "clean":
            clean_home(home, 30 * 86400.0, dry_run=False)
        else:
            with temporary_folder(home):
                pass

    command = [sys.executable, "-c", HOLD, str(home.root)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        made = Path(process.stdout.readline().strip())
        others()
        assert made.exists()
        process.send_signal(signal.SIGKILL)
    others()
    assert not made.exists()
    assert list(home.work.glob(f"{PREFIX}*")) == []


def test_what_was_being_removed_when_its_process_was_killed_goes(home: Home) -> None:
    for name in (".trash-train-abc-1", ".ingest-abc.gone"):
        (home.work / name / "inside").mkdir(parents=True)
    (home.work / "train-abc").mkdir()  # a rerun goes on from it
    with temporary_folder(home):
        pass
    assert [path.name for path in home.work.iterdir()] == ["train-abc"]
