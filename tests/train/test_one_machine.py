"""Ranks of one machine: where they meet, how they end, and what they tell each other."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tasks.processes.children import MEETING_FILE, PARENT
from tasks.train.ranks import collectives
from tasks.train.ranks.collectives import from_message, to_message
from tasks.train.strategies.base import Ranks
from tests.flows.conftest import ROOT, environment

_WAITS = "import time; time.sleep(60)"


def start(tmp_path: Path, program: str, count: int = 2) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tasks.train.ranks.one_machine", str(count), "-c", f"import os, sys\n{program}"],
        env={**environment(), PARENT: str(os.getpid()), "TMPDIR": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
    )


def test_ranks_meet_where_only_their_user_can_look(tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
folder = Path(os.environ[{MEETING_FILE!r}]).parent
place = [os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")]
sys.stdout.write(f"{{oct(folder.stat().st_mode)}} {{folder.parent}} {{' '.join(place)}}\\n")
"""
    done = start(tmp_path, program)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"0o40700 {tmp_path} {rank} {rank} 2 2" for rank in range(2)]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        ("sys.exit(2)", 2, "rank 1 ended with exit code 2"),
        ("os.kill(os.getpid(), 9)", -signal.SIGKILL, "rank 1 ended with signal SIGKILL (out of memory?)"),
        ("os.abort()", -signal.SIGABRT, "rank 1 ended with signal SIGABRT"),
    ],
)
def test_one_that_ends_badly_ends_them_all(tmp_path: Path, end: str, code: int, words: str) -> None:
    done = start(tmp_path, f"if os.environ['RANK'] == '1': {end}\n{_WAITS}")
    assert (done.returncode, done.stderr.strip()) == (code, words)
    assert not list(tmp_path.iterdir())


def test_a_rank_that_has_finished_waits_for_nobody(tmp_path: Path) -> None:
    done = start(tmp_path, "import time\ntime.sleep(0.5 * int(os.environ['RANK'])); print('over')", count=3)
    assert (done.returncode, done.stdout) == (0, "over\n" * 3)


def test_ranks_that_do_not_reach_each_other_say_so_and_end(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(collectives, "_LONG_SECONDS", 0.1)
    monkeypatch.setattr(collectives, "_TOO_LONG_SECONDS", 0.5)
    monkeypatch.setattr(collectives.os, "_exit", ended.append)
    with collectives._impatient(Ranks(3, 4, 1, 2, 1, 2)):
        time.sleep(0.3)
        said = capfd.readouterr().out
        assert said.startswith("warning: rank 3 still waits for the others")
        assert "machines have to reach each other" in said
        assert not ended
        time.sleep(0.5)
    assert ended == [1]
    with collectives._impatient(Ranks(3, 4, 3, 4)):
        pass
    time.sleep(0.7)
    assert (ended, capfd.readouterr().out) == ([1], "rank 3 gives up\n")


def sent(value: Any) -> Any:
    text, arrays = to_message(value)
    left = iter(arrays)

    def receive(num_bytes: int) -> Tensor:
        array = next(left)
        assert len(array) == num_bytes
        return array

    return from_message(text, receive)


def test_what_ranks_tell_each_other_arrives_as_it_was() -> None:
    value = {
        "plain": [None, True, 1, 0.1, float("inf"), "ä\udc80", (1, (2, [3])), np.float32(0.5), np.int64(1 << 60)],
        1: {(2, 3): b"\x00bytes", "empty": b"", "dict": {"tuple": 1, "dtype": "x", "bytes": 2}},
    }
    assert sent(value) == value
    assert np.isnan(sent(float("nan")))
    for tensor in (
        torch.arange(6).view(2, 3).t(),
        torch.tensor(1.5, dtype=torch.bfloat16),
        torch.empty(0, 3, dtype=torch.bool),
        torch.nn.Parameter(torch.ones(2)),
    ):
        arrived = sent([tensor])[0]
        assert arrived.dtype == tensor.dtype
        assert torch.equal(arrived, tensor)
    for array in (np.arange(6, dtype=np.int32).reshape(2, 3).T, np.zeros((0, 2)), np.array(True), np.uint64([1 << 63])):
        arrived = sent(array)
        assert arrived.dtype == array.dtype
        assert np.array_equal(arrived, array)
        assert arrived.flags.writeable


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_nothing_that_ranks_receive_is_run(tmp_path: Path) -> None:
    bang = tmp_path / "bang"
    pickle.loads(pickle.dumps(Bomb(bang)))
    assert bang.exists()
    bang.unlink()

    def receive(num_bytes: int) -> Tensor:
        return torch.zeros(num_bytes, dtype=torch.uint8)

    for text in (
        pickle.dumps(Bomb(bang)),
        b'{"dtype": "load", "shape": [1]}',
        b'{"array": {"dtype": "hub", "shape": [1]}}',
        b'{"array": "O"}',
    ):
        with pytest.raises((ValueError, TypeError, AttributeError)):
            from_message(text, receive)
    assert not bang.exists()
    for value in (Bomb(bang), {1, 2}, np.array([None]), np.array(["text"])):
        with pytest.raises(TypeError):
            to_message([value])
