"""Every socket that others can connect to while stages run is listed here, and is on the loopback."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.flows.conftest import command, environment, write_recipe
from tests.flows.listening import Listener, watching
from tests.warm_python import forked_processes

pytestmark = pytest.mark.timeout(900)  # a loaded machine takes ten times as long

EXPECTED = {
    "flows.cli": "the socket of the run's own Prefect server: the run opens it, and keeps it where a server is killed",
    "flows.web.temporary_server": "the run's own Prefect server, which asks for a password",
    "tasks.train.worker": "gloo: a rank waits here for the others (only where there are several)",
    "tasks.evaluate.worker": "the same, where ranks that hold parts of a graph evaluate together",
}


def unexpected(seen: set[Listener]) -> list[Listener]:
    return [one for one in seen if one.program not in EXPECTED or not one.on_loopback]


def run(home: Path, recipe: Path, *changes: str, before: tuple[str, ...] = (), forked: bool = True) -> set[Listener]:
    with watching(home) as watch, forked_processes() if forked else nullcontext():
        done = subprocess.run(
            [*before, *command(home, "run", str(recipe), *changes)],
            env={**environment(), "GRAPHMILL_TEST_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=800,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return watch.seen


@pytest.mark.parametrize(
    ("changes", "rank"),
    [
        ((), None),
        (("train.num_ranks=2",), "tasks.train.worker"),
        (("train.num_ranks=2", "train.strategy=partitioned", "train.loader=neighbor"), "tasks.evaluate.worker"),
    ],
    ids=["alone", "two-ranks", "parts"],
)
def test_what_a_run_listens_on(tmp_path: Path, changes: tuple[str, ...], rank: str | None) -> None:
    seen = run(tmp_path / "home", write_recipe(tmp_path), *changes)
    assert not unexpected(seen)
    programs = {one.program for one in seen}
    assert "flows.cli" in programs  # the test sees what it looks for
    assert rank is None or rank in programs
    assert rank is not None or not programs & {"tasks.train.worker", "tasks.evaluate.worker"}


def _unshared() -> tuple[str, ...]:
    """What runs a command under a name of this machine that nothing knows; empty: not possible here."""
    tool = shutil.which("unshare")
    for options in (("--uts",), ("--user", "--map-root-user", "--uts")):
        words = (tool or "unshare", *options, "sh", "-c", 'hostname no-such-host.invalid && exec "$@"', "sh")
        if tool is not None and subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0:
            return words
    return ()


def test_ranks_of_one_machine_need_no_name_that_resolves(tmp_path: Path) -> None:
    before = _unshared()
    if not before:
        pytest.skip("a namespace with another host name is not allowed here")
    assert not unexpected(run(tmp_path / "home", write_recipe(tmp_path), "train.num_ranks=2", before=before))


def test_a_proxy_is_not_asked_for_what_is_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "socks5h://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "example.org,[::1]")
    run(tmp_path / "home", write_recipe(tmp_path), forked=False)
