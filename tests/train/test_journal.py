"""What a training says of the time that it still takes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tasks.train.job import METRICS, PROGRESS
from tasks.train.state import journal
from tasks.train.state.journal import Journal, Progress


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


def test_what_was_recorded_after_the_checkpoint_is_cut_back_on_machines_with_other_times(tmp_path: Path) -> None:
    saved: dict[str, Any] = {}
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder, seconds in zip(folders, (1.0, 12345.678), strict=True):
        folder.mkdir()
        progress = Progress(seconds=seconds)
        kept = Journal(folder, progress, total_steps=9, epochs=9, world_size=2, writes=True)
        for step in (1, 2, 3):
            progress.step = step
            kept.record({"loss": 0.5})
            if step == 2:
                kept.note_checkpoint()
                saved = dataclasses.asdict(progress) if folder is folders[0] else saved
    for folder in folders:  # both go on from the first one's checkpoint
        Journal(folder, Progress(**saved), total_steps=9, epochs=9, world_size=2, writes=True)
        lines = (folder / METRICS).read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == [1, 2]
