"""What a rank writes of its training, and goes on from: the last state and the best model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from models.base import GraphModel
from tasks.sampling.parts.ranges import Ranges
from tasks.train.embeddings.host_tables import TABLE
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


class ModelFiles:
    """Writes and reads a model and what optimizes it, on one rank; all ranks call it together.

    While a table's rows lie on several ranks, each writes its own; `finish` brings them together, so that what a
    training leaves is the same whoever trained it.
    """

    def __init__(
        self,
        job: GnnJob,
        model: GraphModel,
        optimization: Optimization,
        ranks: Ranks,
        ranges: Ranges | None,
        *,
        writes: bool,
    ) -> None:
        """`ranges`: which rank has which rows of a sparse embedding; None: every machine has all."""
        self.job, self.model, self.optimization, self.ranks, self.writes = job, model, optimization, ranks, writes
        self._ranges = ranges if optimization.embedding is not None else None

    def save_best(self, progress: Progress) -> None:
        """Keep the model as it is."""
        shards = {_SHARDS: self._write_shards("best", {})} if self._ranges else {}
        if self.writes:
            state = checkpoint.best_state(self.model, self.job.digest, progress.epoch, progress.best_metric)
            checkpoint.save_atomic({**state, **shards}, self.job.work / BEST)
        self.remove_others("best", shards)

    def last_state(self) -> dict[str, Any]:
        """Return all that a run needs to go on, but for rows that ranks have written apart."""
        state = {
            "model": self.model.state_dict(),
            "label_scale": self.model.label_units,
            **self.optimization.state_dict(),
            "rng": checkpoint.rng_state(),
        }
        if self._ranges is not None:
            state[_SHARDS] = self._write_shards("last", state.pop("embedding"))
        return state

    def remove_others(self, name: str, state: dict[str, Any]) -> None:
        """Remove the tables of the checkpoint before the one that holds `state`; all ranks together."""
        if self._ranges is not None and not self.job.train.shared_home:
            wait_for_all()  # the job goes on from rank 0's checkpoint: until that is written, the one before holds
        if self.writes:
            remove_others(self.job.work, name, state.get(_SHARDS))

    def restore(self, path: Path, state: dict[str, Any], tables: dict[str, Tensor] | None) -> None:
        """Take over what `last_state` returned, read from `path`; `tables`: of sparse embeddings, on rank 0."""
        embedding = self.optimization.embedding
        with checkpoint.going_on_from(path):
            self.model.load_state_dict(state["model"])
            if state["label_scale"]:  # a warm start's is that of the weights that it began with
                self.model.scale_labels(*state["label_scale"])
            self.optimization.load_state_dict(state)
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
            self.remove_others(name, {})

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
