"""A process that is told to end does so within seconds, whatever keeps it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOON_SECONDS = 20.0
"""Five on an idle machine; tests share theirs."""

_PREAMBLE = """
import hashlib, os, subprocess, sys, time
from pathlib import Path
from configs.errors import RecipeError, StageError
from tasks.processes import ending
place = Path(sys.argv[1])
child = subprocess.Popen(["sleep", "600"], stderr=subprocess.DEVNULL)
spared = subprocess.Popen(["sleep", "600"], stderr=subprocess.DEVNULL)
ending.spare(spared.pid)
(place / "children").write_text(f"{child.pid} {spared.pid}")
def leave(name): (place / name).touch()
def ready(): leave("ready")
"""

# What the main thread does when the signal comes, and whether it unwinds by itself.
WAYS = {
    "waits": ("ready(); time.sleep(600)", True),
    "waits for a child": ("ready(); child.wait(); time.sleep(0.5)", True),
    "is inside of a library": ("ready(); hashlib.pbkdf2_hmac('sha256', b'x', b'y', 10**9)", False),
    "loses the exception": ("\n try:\n  ready(); time.sleep(600)\n except BaseException: pass\n time.sleep(600)", True),
    "loses each exception": ("\n ready()\n while True:\n  try: time.sleep(600)\n  except BaseException: pass", False),
    "cleans up for ever": (
        "\n try:\n  ready(); time.sleep(600)\n finally:\n  ending.unwinding(); time.sleep(600)",
        False,
    ),
}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[object]:
    processes: list[subprocess.Popen[str]] = []

    def begin(body: str, *, hurried: bool = False, **options: object) -> subprocess.Popen[str]:
        hurry = "ending._AGAIN_SECONDS, ending.GRACE_SECONDS = 0.2, 0.6" if hurried else ""
        script = f"{_PREAMBLE}{hurry}\nwith ending.prompt_ending(), ending.closing(lambda: leave('closed')):\n {body}\n"
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
            **options,  # type: ignore[call-overload]
        )
        processes.append(process)
        while not (tmp_path / "ready").exists():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.02)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate()
    if (tmp_path / "children").exists():
        for pid in (tmp_path / "children").read_text().split():
            if lives(int(pid)):
                os.kill(int(pid), signal.SIGKILL)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("way", WAYS)
def test_a_signal_ends_it(way: str, start: object, tmp_path: Path) -> None:
    body, unwinds = WAYS[way]
    process = start(body, hurried=not unwinds)  # type: ignore[operator]
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=SOON_SECONDS)
    assert process.returncode == 1
    assert (tmp_path / "closed").exists() != unwinds, "what stayed open is closed, and nothing twice"
    assert ("terminated" in said) != unwinds
    child, spared = map(int, (tmp_path / "children").read_text().split())
    assert not lives(child)
    assert lives(spared)
    assert unwinds or time.monotonic() - began >= 0.6, "it had time to do it by itself"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_a_library_makes_of_it_is_an_interrupt_still(
    number: signal.Signals, start: object, tmp_path: Path
) -> None:
    """Pydantic raises an error of its own out of whatever ends a serializer."""
    body = """
 from pydantic import BaseModel, model_serializer
 class Slow(BaseModel):
  @model_serializer
  def slowly(self):
   ready()
   time.sleep(600)
 try:
  with ending.undisguised(): Slow().model_dump_json()
 except Exception as error: leave("error")
 except BaseException as error: leave(type(error).__name__)
"""
    process = start(body)  # type: ignore[operator]
    process.send_signal(number)
    process.communicate(timeout=SOON_SECONDS)
    assert (tmp_path / ("KeyboardInterrupt" if number == signal.SIGINT else "TerminatedError")).exists()
    assert not (tmp_path / "error").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_second_signal_does_not_disturb_the_clean_up(number: signal.Signals, start: object, tmp_path: Path) -> None:
    clean_up = "ending.unwinding(); leave('cleaning'); time.sleep(0.5); leave('clean')"
    process = start(f"\n try:\n  ready(); time.sleep(600)\n finally:\n  {clean_up}")  # type: ignore[operator]
    process.send_signal(number)
    while not (tmp_path / "cleaning").exists():
        time.sleep(0.01)
    process.send_signal(number)
    process.communicate(timeout=SOON_SECONDS)
    assert (tmp_path / "clean").exists()
    assert process.returncode != 0


@pytest.mark.parametrize(("kind", "code"), [("StageError", 1), ("RecipeError", 2)])
def test_giving_up_says_why(kind: str, code: int, start: object) -> None:
    """A mistake that another machine has found ends this one as a mistake does, however busy it is."""
    give_up = f"\n try: ending.give_up({kind}('the reason')); time.sleep(9)\n except BaseException: pass"
    process = start(give_up + WAYS["loses each exception"][0], hurried=True)  # type: ignore[operator]
    _, said = process.communicate(timeout=SOON_SECONDS)
    assert (process.returncode, said) == (code, "error: the reason\n")


def test_nohup_stays_in_force(start: object) -> None:
    process = start(  # type: ignore[operator]
        "ready(); time.sleep(1)", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=SOON_SECONDS)
    assert process.returncode == 0


def test_handlers_are_as_before_afterwards() -> None:
    from tasks.processes import ending

    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    with ending.prompt_ending(), ending.prompt_ending():
        assert signal.getsignal(signal.SIGTERM) is not before[0]
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)] == before
    assert not ending.is_ending()
