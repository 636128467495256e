"""What a command says while it waits, in tables on terminals and in pipes, and of a server that goes away."""

from __future__ import annotations

import http.server
import io
import threading
import time
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from rich.console import Console

from configs.errors import StageError
from flows.commands.runs import start
from flows.terminal import waiting as module
from flows.terminal.console import table
from flows.terminal.progress import Reporter
from flows.terminal.waiting import waiting
from tests.ports import Fine, free_port

LONG = "words that say at length why a stage runs again, " * 4


def shown(*, width: int, terminal: bool) -> list[str]:
    made = table("stage", "why", "size", right=("size",))
    made.add_row("preprocess", LONG, "4.3 MB")
    made.add_row("train", "[bold]\nand a second line", "730 kB")
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=terminal, color_system=None, soft_wrap=not terminal)
    console.print(made)
    return file.getvalue().splitlines()


def test_a_pipe_gets_whole_lines_without_art() -> None:
    head, first, second = shown(width=40, terminal=False)
    assert head == f"stage       {'why':<{len(LONG)}}    size"
    assert first == f"preprocess  {LONG}  4.3 MB"
    assert second.split() == ["train", "[bold];", "and", "a", "second", "line", "730", "kB"]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_terminal_gets_no_line_that_is_too_wide(width: int) -> None:
    lines = shown(width=width, terminal=True)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "preprocess" in text, "names stay whole"
    assert "4.3 MB" in text, "figures stay whole"
    assert "─" in text


def test_the_names_of_figures_stay_whole_at_80_columns() -> None:
    names = ("mrr", "ap", "rocauc", "hits@1", "hits@3", "hits@10")
    made = table("a recipe", *names, right=names)
    made.add_row("valid · common neighbours", *["0.0000"] * len(names))
    file = io.StringIO()
    Console(file=file, width=80, force_terminal=True, color_system=None).print(made)
    head = next(line for line in file.getvalue().splitlines() if "rocauc" in line)
    assert head.split() == ["a", "recipe", *names]


@pytest.mark.parametrize(
    ("elapsed", "remaining", "detail", "said"),
    [
        (3.0, 2000.0, "1 of 120 steps", ""),  # of a first step that compiled
        (30.0, None, "1 of 120 steps", ""),
        (30.0, 60.0, "1 of 120 steps", "60.0 s left"),
        (30.0, 60.0, "1 of 120 steps  epoch 1/10, 0:55 left", ""),  # the training's own estimate stands there
    ],
)
def test_what_is_left_is_said_after_the_first_seconds(
    elapsed: float, remaining: float | None, detail: str, said: str
) -> None:
    task: Any = SimpleNamespace(elapsed=elapsed, time_remaining=remaining, fields={"detail": detail})
    column: Any = Reporter()._live().columns[-1]
    assert column.render(task).plain == said


def _said(capsys: pytest.CaptureFixture[str], lines: int = 1) -> str:
    text, deadline = "", time.monotonic() + 60
    while text.count("\n") < lines and time.monotonic() < deadline:
        time.sleep(0.01)
        text += capsys.readouterr().err
    return text


def test_what_takes_longer_than_a_moment_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "_MOMENT_SECONDS", 0.01)
    with waiting("the server starts"):
        assert _said(capsys) == "the server starts ...\n"
    reporter = Reporter()
    reporter.begin("train")
    assert _said(capsys) == "train ...\n"
    reporter.end("train", "ran")
    assert _said(capsys, 2) == "train       ran\nPrefect records it ...\n"
    reporter.close()


def test_nothing_is_said_of_a_moment(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module, "_MOMENT_SECONDS", 0.2)
    with waiting("the server starts"):
        pass
    reporter = Reporter()
    reporter.begin("train")
    reporter.message("train", "begins with rank 0")
    reporter.end("train", "ran")
    reporter.close()
    time.sleep(0.5)
    assert "..." not in capsys.readouterr().err


def test_a_server_that_is_away_is_named_at_once_and_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    port, servers = free_port(), []

    def question() -> int:
        if len(servers) < 2:  # the first time nobody listens
            servers.append(http.server.HTTPServer(("127.0.0.1", port), Fine) if servers else None)
        if servers[-1] is not None:
            threading.Thread(target=servers[-1].handle_request, daemon=True).start()
        with httpx.Client(trust_env=False) as client:
            return client.get(f"http://127.0.0.1:{port}").status_code

    assert start._answer(question) == 200
    servers[-1].server_close()
    (away,) = capsys.readouterr().err.splitlines()
    assert away.startswith("the Prefect server does not answer, waiting for it; it is started by: ")


def test_a_server_that_stays_away_ends_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_AWAY_SECONDS", 0.0)

    def question() -> None:
        raise httpx.ConnectError("refused")

    with pytest.raises(StageError, match=r"has not answered for 0 minutes; .*graphmill.* runs$"):
        start._answer(question)
