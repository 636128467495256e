"""One bookkeeper for all trainings: rounds of steps, validation, the best so far, checkpoints, the journal, the end.

What is learnt an engine knows: by gradients of batches (`gradients`), in tables of rows on a grid of blocks (`tables`,
`knowledge`, `layout`), by relation (`multiplex`), or at once (`factors`).

Everything random comes from counters (seed, epoch, step, rank), so a run that was killed and goes on from its last
checkpoint takes the same steps as one that was left alone (with three ranks or more up to the order of sums over them).
"""

from __future__ import annotations

import math
import time
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any, NamedTuple

import torch

from tasks.train.embeddings.host_tables import take_tables
from tasks.train.job import BEST, LAST, Job, check_archive, set_aside
from tasks.train.ranks.collectives import from_main, joined, sum_over_ranks
from tasks.train.state import checkpoint
from tasks.train.state.journal import Journal, Progress
from tasks.train.strategies.base import Ranks

_MOST_STEPS = 1e9  # between two looks at the clock


class RoundTotals(NamedTuple):
    """What all ranks did in a round."""

    loss: float
    """Mean loss times samples."""
    samples: float
    edges: float
    seconds: float
    """In steps, the mean over ranks."""


class Engine:
    """What a family trains with: it takes steps, measures, and says what a checkpoint has to hold.

    All ranks of a job have one and call it together. A round is `steps_a_round` steps; after it a validation and a
    checkpoint may be due.
    """

    unit = "seeds"
    """What samples are called."""
    device = torch.device("cpu")
    """Where it trains."""
    steps_a_round = 1
    eval_every: int | None = None
    """Epochs between validations; None: what is learnt is measured at the end only."""
    best_is_file = False
    """Whether `judge` writes the best model; else the last checkpoint leads to it."""
    checkpoint_every: int | None = None
    """Epochs between checkpoints; None: only the clock says when (`train.checkpoint_minutes`)."""

    def __init__(self, job: Job[Any], ranks: Ranks, *, mapped: bool = False) -> None:
        """Read rank 0's last checkpoint, if there is one: only one is sure to be there. `mapped`: see `load`.

        A subclass opens the graph, makes what learns, calls `begin`, and takes over `last`, what its `state` returned;
        None: the training begins. Tables of sparse embeddings are apart in `last_tables`, on rank 0 alone.
        """
        self.job, self.ranks = job, ranks
        self.last_path = job.work / LAST
        state: dict[str, Any] | None = None
        if ranks.is_main and self.last_path.exists():
            state = checkpoint.load(self.last_path, job.digest, mapped=mapped)
        with checkpoint.going_on_from(self.last_path):
            self.last_tables = take_tables(state) if state else None
        self.last = from_main(state)
        with checkpoint.going_on_from(self.last_path):
            self.progress = Progress(**self.last["progress"]) if self.last else Progress()
        if not ranks.is_main:
            self.progress.epoch_totals = [0.0] * 4  # rank 0 has what all counted, and they are summed again

    def begin(self, total_steps: int, epochs: int) -> None:
        """Open the journal of a training that takes so many steps, in so many epochs."""
        self.total_steps = total_steps
        sizes = total_steps, epochs, self.ranks.world_size
        self.journal = Journal(self.job.work, self.progress, *sizes, writes=self.ranks.is_main, unit=self.unit)

    def running(self) -> AbstractContextManager[object]:
        """Return what is open from the first step to the last."""
        return nullcontext()

    def step(self) -> None:
        """Take a step, and count it in `progress`. Raises RecipeError: the training diverged."""
        raise AssertionError(f"{type(self).__name__} takes no steps")

    def epochs_done(self) -> int:
        """Return the epochs that are over, at the end of a round."""
        return self.progress.epoch

    def end_round(self, totals: RoundTotals) -> dict[str, float]:
        """Return what the journal's line of a round says, beside metrics; nothing: there is none without metrics."""
        return {}

    def validate(self) -> tuple[dict[str, float], float]:
        """Return the metrics of the validation split and the score that chooses the best epoch, on all ranks alike."""
        raise AssertionError(f"{type(self).__name__} is measured at the end only")

    def judge(self, *, is_best: bool) -> None:
        """Keep what was measured if it is the best so far."""

    def state(self) -> dict[str, Any]:
        """Return all that the training goes on from; what lies in files of its own is on the disk then."""
        raise AssertionError(f"{type(self).__name__} has no state")

    def saved(self, state: dict[str, Any]) -> None:
        """Remove files of the checkpoints before the one that holds `state`."""

    def end(self) -> None:
        """Do what is left for all ranks, after the last checkpoint."""

    def finish(self) -> None:
        """Write the best model, if it is not there yet; only ranks that write do so, when the others have left."""

    @property
    def num_parameters(self) -> int:
        """Numbers that are learnt."""
        raise AssertionError(f"{type(self).__name__} has no parameters")


def train(
    make: Callable[[], Engine], ranks: Ranks, device: torch.device = Engine.device, *, share_gpu: bool = False
) -> None:
    """Train one rank to the end, from the last checkpoint if there is one, and write the outcome.

    `make` returns the engine, on all ranks together; `device` is where tensors lie that ranks exchange.

    Raises RecipeError: options that do not fit the data, or a training that diverged.
    """
    with joined(ranks, device, share_gpu=share_gpu):
        engine = make()
        run(engine)
    finish(engine)


def run(engine: Engine) -> None:
    """Take the steps that are left; all ranks together."""
    Bookkeeper(engine).run()


def finish(engine: Engine) -> None:
    """Write the outcome; each rank by itself."""
    if engine.journal.writes:
        engine.finish()
        engine.journal.finish(engine.num_parameters, str(engine.device))


class Bookkeeper:
    """Keeps the books of one rank of a training."""

    def __init__(self, engine: Engine) -> None:
        """Begin where the engine's progress says."""
        self.engine, self.progress, self.journal = engine, engine.progress, engine.journal
        self.train = engine.job.train
        self._saved_at, self._saved_step = time.monotonic(), self.progress.step
        self._next_look = self.progress.step
        self._is_saved = False

    def run(self) -> None:
        """Train round by round, validate, keep the best, stop early."""
        progress, engine = self.progress, self.engine
        patience = getattr(self.train, "patience", None) or math.inf
        with engine.running():
            if engine.best_is_file and progress.best_epoch and from_main(self._lost_best()):
                progress.best_epoch, progress.best_metric = 0, -math.inf
                self.journal.record(self._validate())
            while progress.step < engine.total_steps and progress.evaluations_without_gain < patience:
                began = time.perf_counter()
                engine.step()
                progress.epoch_totals[3] += time.perf_counter() - began
                self._is_saved = False
                self.journal.write_progress()
                if progress.step_in_epoch == engine.steps_a_round:
                    self._finish_round()
                self._save_in_between()
        if not self._is_saved:
            self.save()
        engine.end()

    def _lost_best(self) -> bool:
        """Whether rank 0 has no best model, or a damaged one, which is set aside."""
        path = self.engine.job.work / BEST
        if not self.engine.ranks.is_main:
            return False
        try:
            check_archive(path)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            kept = f", was set aside as {set_aside(path).name}" if path.exists() else ""
            print(f"warning: {path} is damaged ({error}){kept}; the best epoch is chosen from here on", flush=True)
            return True
        return False

    def _finish_round(self) -> None:
        progress, engine, before = self.progress, self.engine, self.progress.epoch
        loss, samples, edges, seconds = sum_over_ranks(progress.epoch_totals)
        totals = RoundTotals(loss, samples, edges, seconds / engine.ranks.world_size)
        progress.run_totals = [old + new for old, new in zip(progress.run_totals, totals[1:], strict=True)]
        progress.epoch = engine.epochs_done()
        progress.step_in_epoch, progress.epoch_totals = 0, [0.0] * 4
        record = engine.end_round(totals)
        is_last = progress.step >= engine.total_steps
        if engine.eval_every and (is_last or self._passed(before, engine.eval_every)):
            record |= self._validate()
        if record:
            self.journal.record(record)
        if engine.checkpoint_every and self._passed(before, engine.checkpoint_every):
            self.save()

    def _passed(self, before: int, every: int) -> bool:
        """Whether a multiple of `every` epochs was reached since epoch `before`."""
        return self.progress.epoch // every > before // every

    def _validate(self) -> dict[str, float]:
        self.journal.write_progress("validating", force=True)
        metrics, score = self.engine.validate()
        self.engine.judge(is_best=self.progress.take_score(score))
        return {f"valid/{name}": number for name, number in metrics.items()}

    # ---- checkpoints

    def _save_in_between(self) -> None:
        """Keep a long round's steps: a checkpoint every so many minutes of rank 0's clock.

        Ranks save at the same step, as a checkpoint holds what they counted together. They look at the clock after half
        of the steps that are left until then, and so a few times for each checkpoint, not in every step.
        """
        step = self.progress.step
        if step < self._next_look or self._is_saved:
            return
        waited = from_main(time.monotonic() - self._saved_at)
        left = 60 * self.train.checkpoint_minutes - waited
        if left <= 0:
            self.save()
        pace = max(waited, 1e-6) / max(1, step - self._saved_step)
        self._next_look = step + max(1, int(min(left / pace, _MOST_STEPS) / 2))

    def save(self) -> None:
        """Write a checkpoint; all ranks together."""
        self._saved_at, self._saved_step, self._is_saved = time.monotonic(), self.progress.step, True
        self.journal.note_checkpoint()
        state = self.engine.state()
        totals = sum_over_ranks(self.progress.epoch_totals)
        if self.journal.writes:
            progress = {**asdict(self.progress), "epoch_totals": totals}
            content = {"config_digest": self.engine.job.digest, "progress": progress, **state}
            checkpoint.save_atomic(content, self.engine.last_path)
        self.engine.saved(state)
