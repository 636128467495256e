"""What a rank writes of its training, and goes on from: the last state and the best model."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from models.base import GraphModel
from tasks.sampling.parts.ranges import Ranges
from tasks.train.embeddings.host_tables import TABLE, take_tables
from tasks.train.embeddings.sharded import ShardedEmbedding
from tasks.train.embeddings.shards import read_shards, remove_others, whole_tables, write_shards
from tasks.train.gradients.steps import Optimization
from tasks.train.job import BEST, LAST, GnnJob
from tasks.train.ranks.collectives import from_main, wait_for_all
from tasks.train.state import checkpoint
from tasks.train.state.journal import Progress
from tasks.train.strategies.base import Ranks

_SHARDS = "shards"
"""In a checkpoint: where tables lie whose rows several ranks wrote (see `embeddings.shards`)."""


class Checkpoints:
    """Writes and reads the checkpoints of one rank; all ranks call it together.

    While a table's rows lie on several ranks, each writes its own; `finish` brings them together, so that what a
    training leaves is the same whoever trained it.
    """

    def __init__(
        self, job: GnnJob, model: GraphModel, optimization: Optimization, ranks: Ranks, ranges: Ranges | None
    ) -> None:
        """`ranges`: which rank has which rows of a sparse embedding; None: every machine has all."""
        self.job, self.model, self.optimization, self.ranks = job, model, optimization, ranks
        self._ranges = ranges if optimization.embedding is not None else None
        # One rank writes into each home: machines that do not share one keep a copy each.
        self.writes = ranks.is_main if job.train.shared_home else ranks.local_rank == 0

    def save_best(self, progress: Progress) -> None:
        """Keep the model as it is."""
        shards = self._write_shards("best", {}) if self._ranges else None
        if self.writes:
            state = checkpoint.best_state(self.model, self.job.digest, progress.epoch, progress.best_metric)
            checkpoint.save_atomic(state if shards is None else {**state, _SHARDS: shards}, self.job.work / BEST)
        self._remove_others("best", shards)

    def save_last(self, progress: Progress, totals: list[float]) -> None:
        """Keep all that a run needs to go on; `totals` are the present epoch's of all ranks."""
        embedding = self.optimization.embedding
        tables = {} if embedding is None else embedding.tensors()
        shards = self._write_shards("last", tables) if self._ranges else None
        if self.writes:
            self._write_last(progress, totals, shards)
        self._remove_others("last", shards)

    def _write_last(self, progress: Progress, totals: list[float], shards: dict[str, Any] | None) -> None:
        state = {
            "config_digest": self.job.digest,
            "progress": {**dataclasses.asdict(progress), "epoch_totals": totals},
            "model": self.model.state_dict(),
            "label_scale": self.model.label_units,
            **self.optimization.state_dict(),
            "rng": checkpoint.rng_state(),
        }
        if shards is not None:
            del state["embedding"]
            state[_SHARDS] = shards
        checkpoint.save_atomic(state, self.job.work / LAST)

    def _remove_others(self, name: str, shards: dict[str, Any] | None) -> None:
        """Remove the tables of the checkpoint before; all ranks together."""
        if self._ranges is not None and not self.job.train.shared_home:
            wait_for_all()  # the job goes on from rank 0's checkpoint: until that is written, the one before holds
        if self.writes:
            remove_others(self.job.work, name, shards)

    def restore(self) -> Progress | None:
        """Go on from the last checkpoint of rank 0's machine: only one is sure to be there. None: there is none."""
        path = self.job.work / LAST
        embedding = self.optimization.embedding
        state: dict[str, Any] | None = None
        if self.ranks.is_main and path.exists():
            state = checkpoint.load(path, self.job.digest, mapped=embedding is not None)
        with checkpoint.going_on_from(path):
            tables = take_tables(state) if state else None
        state = from_main(state)
        if state is None:
            return None
        with checkpoint.going_on_from(path):
            self.model.load_state_dict(state["model"])
            if state["label_scale"]:  # a warm start's is that of the weights that it began with
                self.model.scale_labels(*state["label_scale"])
            self.optimization.load_state_dict(state)
            progress = Progress(**state["progress"])
            checkpoint.set_rng_state(state["rng"])
            if _SHARDS in state:
                assert self._ranges is not None
                tables = read_shards(self.job.work, state[_SHARDS], self._ranges)
        if _SHARDS in state:
            assert isinstance(embedding, ShardedEmbedding)
            assert tables is not None
            embedding.restore_own(tables)
        elif embedding is not None:  # also where a training in shards was killed when all was written
            embedding.restore(tables)
        if not self.ranks.is_main:
            progress.epoch_totals = [0.0] * 4  # rank 0 has what all counted, and they are summed again
        return progress

    def finish(self) -> None:
        """Bring the rows of several ranks together in the checkpoints that stay."""
        if self._ranges is None:
            return
        for name, path in (("best", self.job.work / BEST), ("last", self.job.work / LAST)):
            state = checkpoint.load(path) if self.writes else None
            shards = from_main(None if state is None else state.get(_SHARDS))
            if shards is None:
                continue
            tables = read_shards(self.job.work, shards, self._ranges)
            whole = whole_tables(tables, self._ranges, self.job.work, writes=self.writes)
            if state is not None:
                state = {key: value for key, value in state.items() if key not in (_SHARDS, "format")}
                state["model"][TABLE] = whole.pop("weight")
                if name == "last":
                    state["embedding"] = whole
            self._replace(path, state)
            self._remove_others(name, None)

    def _replace(self, path: Path, state: dict[str, Any] | None) -> None:
        """Write a whole checkpoint in the place of one in shards (None: this rank writes none); all ranks together.

        Rank 0's comes last: by it a run that goes on knows whether there is anything left to do.
        """
        if state is not None and not self.ranks.is_main:
            checkpoint.save_atomic(state, path)
        if not self.job.train.shared_home:
            wait_for_all()
        if state is not None and self.ranks.is_main:
            checkpoint.save_atomic(state, path)

    def _write_shards(self, name: str, tables: dict[str, Any]) -> dict[str, Any]:
        embedding, ranges = self.optimization.embedding, self._ranges
        assert embedding is not None
        assert ranges is not None
        return write_shards(self.job.work, name, {"weight": embedding.weight, **tables}, ranges, writes=self.writes)
