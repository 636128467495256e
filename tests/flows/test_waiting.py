"""A command says what it waits for where that takes longer than a moment, and else nothing."""

from __future__ import annotations

import time

import pytest

from flows.terminal import waiting as module
from flows.terminal.progress import Reporter
from flows.terminal.waiting import waiting


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
