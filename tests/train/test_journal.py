"""What a training says of the time that it still takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.train import journal
from tasks.train.job import PROGRESS
from tasks.train.journal import Journal, Progress


def test_the_first_step_and_the_first_seconds_say_nothing_of_the_time_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 0.0
    monkeypatch.setattr(journal.time, "monotonic", lambda: clock)
    progress = Progress()
    kept = Journal(tmp_path, progress, total_steps=100, epochs=10, world_size=1, writes=True)

    def left() -> float | None:
        kept.write_progress(force=True)
        found: float | None = json.loads((tmp_path / PROGRESS).read_text())["eta_seconds"]
        return found

    assert left() is None
    progress.step, clock = 1, 30.0  # compiles
    assert left() is None
    progress.step, clock = 3, 32.0
    assert left() is None
    progress.step, clock = 11, 40.0
    assert left() == 89.0  # a second a step, whatever the first one took
