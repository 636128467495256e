"""The state of a training and its files: metrics by step, progress, result."""

from __future__ import annotations

import itertools
import json
import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from tasks.storage.artifacts import write_atomic
from tasks.train.job import METRICS, PROGRESS, RESULT

_PROGRESS_SECONDS = 0.5
_WARM_SECONDS = 5.0
"""Steps are timed for so long before the remaining time is shown."""


@dataclass
class Progress:
    """Where a training stands; with the weights, all that a checkpoint needs."""

    epoch: int = 0
    """Epochs that are finished."""
    step: int = 0
    """Optimizer steps that are done, all epochs together."""
    step_in_epoch: int = 0
    seconds: float = 0.0
    """Time spent so far, earlier attempts included."""
    best_metric: float = -math.inf
    best_epoch: int = 0
    evaluations_without_gain: int = 0
    epoch_totals: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0, 0.0])
    """Of the present round of epochs, on this rank: loss x samples, samples, edges, seconds in steps."""
    run_totals: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """Of all rounds, on all ranks: samples, edges, seconds in steps."""
    cold_because: str | None = None
    """Why a training that was to begin with earlier weights did not; empty: it did; None: it was not to."""
    metrics_records: int = 0
    """Records in metrics.jsonl."""

    def count_step(self, loss: float, samples: float, edges: float = 0.0) -> None:
        """Count a step over so many samples; `loss`: their sum."""
        self.step += 1
        self.step_in_epoch += 1
        for place, more in enumerate((loss, samples, edges)):
            self.epoch_totals[place] += more

    def take_score(self, score: float) -> bool:
        """Take the score of a validation, higher is better; return whether it is the best so far.

        The first one counts even if it is nan, so that no run is left without a best checkpoint; any number beats it.
        """
        beats_nan = math.isnan(self.best_metric) and not math.isnan(score)
        if self.best_epoch == 0 or score > self.best_metric or beats_nan:
            self.best_metric, self.best_epoch, self.evaluations_without_gain = score, self.epoch, 0
            return True
        self.evaluations_without_gain += 1
        return False


class Journal:
    """Writes `metrics.jsonl`, `progress.json` and `result.json`; does nothing on ranks that do not write."""

    def __init__(
        self,
        work: Path,
        progress: Progress,
        total_steps: int,
        epochs: int,
        world_size: int,
        *,
        writes: bool,
        unit: str = "seeds",
    ) -> None:
        """What is written is read from `progress`, which the training changes. `unit`: what the totals count."""
        self.unit = unit
        self.work, self.progress = work, progress
        self.total_steps, self.epochs, self.world_size = total_steps, epochs, world_size
        self.writes = writes
        self.note = ""
        """Said where there is nothing else to say."""
        self.resumed_from_epoch = progress.epoch
        self._began = self._written_at = time.monotonic()
        self._first_step = progress.step
        self._warm: tuple[int, float] | None = None
        """Step and time at which this process had taken its first step."""
        self._started = self._began - progress.seconds
        if writes:
            (work / METRICS).touch()
            with (work / METRICS).open("r+b") as file:  # what lies beyond was written after the checkpoint
                file.truncate(sum(map(len, itertools.islice(file, progress.metrics_records))))
            self._records = progress.metrics_records

    def record(self, values: dict[str, float]) -> None:
        """Append a record of metrics."""
        if not self.writes:
            return
        progress, steps = self.progress, self.total_steps / self.epochs
        line = {
            "step": progress.step,
            "epoch": round(progress.epoch + progress.step_in_epoch / steps, 4),
            "seconds": round(time.monotonic() - self._started, 3),
            **values,
        }
        with (self.work / METRICS).open("a") as file:
            file.write(json.dumps(line) + "\n")
        self._records += 1

    def note_checkpoint(self) -> None:
        """Bring `progress` up to date for a checkpoint: what it says of the metrics' file is on the disk then."""
        self.progress.seconds = time.monotonic() - self._started
        if self.writes:
            with (self.work / METRICS).open("rb") as file:
                os.fsync(file.fileno())
            self.progress.metrics_records = self._records

    def write_progress(self, note: str = "", *, force: bool = False) -> None:
        """Write how far the training is, twice a second at most."""
        now = time.monotonic()
        if not self.writes or not (force or now - self._written_at >= _PROGRESS_SECONDS):
            return
        self._written_at = now
        progress = self.progress
        loss, seeds, _, seconds = progress.epoch_totals
        content = {
            "done": progress.step,
            "total": self.total_steps,
            "epoch": min(progress.epoch + 1, self.epochs),
            "epochs": self.epochs,
            "loss": loss / seeds if seeds else None,
            "rate": self.world_size * seeds / seconds if seconds else None,
            "unit": self.unit,
            "eta_seconds": self._seconds_left(),
            "note": note or self.note,
        }
        path = self.work / PROGRESS
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(content))
        draft.replace(path)  # not flushed to the disk: the next one comes in a moment

    def _seconds_left(self) -> float | None:
        """Estimate from the steps after the first (validations included); None until there are seconds of them.

        The first step of a process compiles kernels and fills caches: it does not count.
        """
        step, now = self.progress.step, time.monotonic()
        if self._warm is None:
            if step > self._first_step:
                self._warm = step, now
            return None
        first, began = self._warm
        if step == first or now - began < _WARM_SECONDS:
            return None
        return (self.total_steps - step) * (now - began) / (step - first)

    def finish(self, num_parameters: int, device: str) -> None:
        """Write the outcome."""
        if not self.writes:
            return
        progress = self.progress
        seeds, edges, seconds = progress.run_totals
        content = {
            "world_size": self.world_size,
            "best_epoch": progress.best_epoch,
            "best_metric": progress.best_metric,
            "epochs_run": progress.epoch,
            "num_parameters": num_parameters,
            "seeds_per_second": seeds / seconds if seconds else 0.0,
            "edges_per_second": edges / seconds if seconds else 0.0,
            "resumed_from_epoch": self.resumed_from_epoch,
            "rows": int(seeds),
            "device": device,
            "cold_because": progress.cold_because,
            "seconds": progress.seconds,
        }
        write_atomic(self.work / RESULT, json.dumps(content).encode())
