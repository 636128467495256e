"""The training loop: one for node, link and graph tasks, for one rank and for many.

Everything random comes from counters (seed, epoch, step, rank), so a run that was killed and goes on from its last
checkpoint takes the same steps as one that was left alone.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import math
import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from configs.errors import DataError, RecipeError
from configs.registry import MODELS, STRATEGIES
from models import dgl_adapter
from models.base import GraphModel
from models.block import Batch
from models.losses import LOSSES
from tasks.evaluate.evaluators import make_evaluator
from tasks.train import checkpoint
from tasks.train.device import choose_device
from tasks.train.inference import Predictor
from tasks.train.job import BEST, LAST, Job, cores
from tasks.train.journal import Journal, Progress
from tasks.train.loaders.base import FeatureSource, graph_facts
from tasks.train.loaders.choose import make_loader
from tasks.train.loaders.prefetch import prefetch
from tasks.train.loaders.sampling import derive_key
from tasks.train.schedule import make_optimizer, make_scheduler
from tasks.train.strategies.base import Ranks, Strategy

_RECORDS_AN_EPOCH = 20
_SHUFFLE, _SAMPLE, _DROPOUT = 1, 2, 3  # purposes that keys are drawn for
# Ranks wait for rank 0's validation in a collective; on a large graph that takes a while.
_COLLECTIVE_TIMEOUT = datetime.timedelta(hours=6)


def train(job: Job, ranks: Ranks) -> None:
    """Train to the end, from the last checkpoint if there is one.

    Raises:
        RecipeError: options that do not fit the data, or a training that diverged.
    """
    _use_threads(job.threads())
    device = choose_device(job.train.device, ranks.local_rank)
    if ranks.world_size > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=_COLLECTIVE_TIMEOUT)
    try:
        Trainer(job, ranks, device).run()
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _use_threads(count: int) -> None:
    torch.set_num_threads(count)
    dgl_adapter.use_threads(count)


class Trainer:
    """One rank of a training."""

    def __init__(self, job: Job, ranks: Ranks, device: torch.device) -> None:
        """Open the graph, build the model, and restore the last checkpoint."""
        self.job, self.config, self.ranks, self.device = job, job.train, ranks, device
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is not deterministic without
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        self.store = job.open_graph()
        manifest = self.store.manifest
        torch.manual_seed(job.seed)
        self.model: GraphModel = MODELS.create(job.model, graph_facts(manifest)).to(device)
        self.loader = make_loader(
            self.config,
            len(self.model.layers),
            self.store,
            FeatureSource.open(self.store, edges=self.model.uses_edge_features),
        )
        self.loader.to(device)
        self.loss = LOSSES[manifest.task_type]
        self.evaluator = make_evaluator(job.evaluate.evaluator, manifest)
        if not manifest.splits.get("valid"):
            raise DataError(f"{manifest.dataset} has no validation split, and that chooses the best epoch; give it one")
        self.predictor = Predictor(self.store, device=device, batch_size=job.evaluate.batch_size, scratch=job.work)
        self.strategy: Strategy = STRATEGIES.create(self.config.strategy, ranks)
        batch_size = self.loader.num_seeds if self.loader.whole_split else self.config.batch_size
        self.steps = self.strategy.steps(self.loader.num_seeds, batch_size)
        self.wrapped = self.strategy.wrap(self.model)
        self.optimizer = make_optimizer(self.config, self.model.parameters(), ranks.world_size)
        self.scheduler = make_scheduler(self.config, self.optimizer, self.steps * self.config.epochs)
        self.progress = Progress()
        self._writes = ranks.local_rank == 0  # once a machine: each keeps its own copy of the outcome
        self._checkpoint_at = time.monotonic()
        self._restore()
        self.journal = Journal(
            job.work,
            self.progress,
            self.steps * self.config.epochs,
            self.config.epochs,
            ranks.world_size,
            writes=self._writes,
        )

    def run(self) -> None:
        """Train epoch by epoch; validate, keep the best, stop early."""
        while self.progress.epoch < self.config.epochs and not self._out_of_patience():
            self._train_epoch()
            self._finish_epoch()
        self._save_last()
        self.journal.finish(checkpoint.count_parameters(self.model), str(self.device))

    def _out_of_patience(self) -> bool:
        patience = self.config.patience
        return patience is not None and self.progress.evaluations_without_gain >= patience

    def _train_epoch(self) -> None:
        """Take the steps of an epoch that are still to be taken."""
        progress, epoch = self.progress, self.progress.epoch
        order = np.random.Generator(np.random.Philox(key=derive_key(self.job.seed, epoch, 0, 0, _SHUFFLE))).permutation(
            self.loader.num_seeds
        )
        first = progress.step_in_epoch

        def make(number: int) -> Batch:
            step = first + number
            positions = order[self.strategy.positions(self.loader.num_seeds, step, self.steps)]
            batch = self.loader.batch(positions, derive_key(self.job.seed, epoch, step, self.ranks.rank, _SAMPLE))
            return batch.pin_memory() if self.device.type == "cuda" else batch

        self.model.train()
        for batch in prefetch(make, self.steps - first, self.config.prefetch):
            began = time.perf_counter()
            loss = self._step(batch.to(self.device))
            totals = progress.epoch_totals
            totals[0] += loss * batch.num_seeds
            totals[1] += batch.num_seeds
            totals[2] += batch.num_edges
            totals[3] += time.perf_counter() - began
            every = max(1, self.steps // _RECORDS_AN_EPOCH)  # always the same steps
            if self.steps > 1 and progress.step_in_epoch % every == 0:
                self.journal.record({"loss": loss, "learning_rate": self._rate()})
            self.journal.say()
            self._save_in_between()

    def _step(self, batch: Batch) -> float:
        """Forward, backward, update; returns the loss."""
        progress = self.progress
        # Dropout must not depend on what was drawn before: a resumed run has not drawn it.
        torch.manual_seed(derive_key(self.job.seed, progress.epoch, progress.step, self.ranks.rank, _DROPOUT))
        self.optimizer.zero_grad(set_to_none=True)
        loss: Tensor = self.loss(self.wrapped(batch), batch.target)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.config.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        self.optimizer.step()
        self.scheduler.step()
        progress.step += 1
        progress.step_in_epoch += 1
        value = loss.item()
        if not math.isfinite(value):
            raise RecipeError(
                f"the training diverged: the loss is {value} at step {progress.step} (epoch {progress.epoch + 1}); "
                f"lower train.learning_rate (now {self.config.learning_rate:g}) or set train.clip_norm"
            )
        return value

    def _finish_epoch(self) -> None:
        """Write the epoch's record, validate where it is due, checkpoint."""
        progress = self.progress
        loss, seeds, edges, seconds = self._sum_over_ranks(progress.epoch_totals)
        seconds /= self.ranks.world_size
        for i, value in enumerate((seeds, edges, seconds)):
            progress.run_totals[i] += value
        progress.epoch += 1
        progress.step_in_epoch, progress.epoch_totals = 0, [0.0] * 4
        record = {
            "train/loss": loss / seeds,
            "learning_rate": self._rate(),
            "seeds_per_second": seeds / seconds,
            "edges_per_second": edges / seconds,
        }
        last = progress.epoch == self.config.epochs
        if last or progress.epoch % self.config.eval_every == 0:
            record.update(self._validate())
        self.journal.record(record)
        if progress.epoch % self.config.checkpoint_every == 0:
            self._save_last()

    def _validate(self) -> dict[str, float]:
        """Measure the validation split on rank 0 and keep the best weights."""
        outcome: list[Any] = [None]
        if dist.is_initialized():
            # Ranks follow their own batch statistics; rank 0's are validated, so every machine keeps those.
            for buffer in self.model.buffers():
                dist.broadcast(buffer, 0)
        if self.ranks.is_main:
            self.journal.say("validating", force=True)
            with self._all_cores():
                outcome = [self.evaluator(self.predictor.predict(self.model, "valid"))]
        if dist.is_initialized():
            dist.broadcast_object_list(outcome, src=0)
        metrics: dict[str, float] = outcome[0]
        value = metrics[self.evaluator.metric]
        score = value if self.evaluator.higher_is_better else -value
        progress = self.progress
        # The first validation always counts: a metric that is nan must not leave a run without a best checkpoint.
        if score > progress.best_metric or progress.best_epoch == 0:
            progress.best_metric, progress.best_epoch = score, progress.epoch
            progress.evaluations_without_gain = 0
            if self._writes:
                state = checkpoint.best_state(self.model, self.job.digest, progress.epoch, score)
                checkpoint.save_atomic(state, self.job.work / BEST)
        else:
            progress.evaluations_without_gain += 1
        return {f"valid/{name}": number for name, number in metrics.items()}

    @contextlib.contextmanager
    def _all_cores(self) -> Iterator[None]:
        """Compute with the cores of the ranks that wait meanwhile."""
        alone = self.ranks.world_size == 1
        _use_threads(self.job.threads() if alone else cores())
        try:
            yield
        finally:
            _use_threads(self.job.threads())

    # ---- checkpoints

    def _save_in_between(self) -> None:
        """Keep a long epoch's steps: a checkpoint every so many minutes."""
        if time.monotonic() - self._checkpoint_at >= 60 * self.config.checkpoint_minutes:
            self._save_last()

    def _save_last(self) -> None:
        self._checkpoint_at = time.monotonic()
        self.journal.note_checkpoint()
        if not self._writes:
            return
        state = {
            "config_digest": self.job.digest,
            "progress": asdict(self.progress),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "rng": checkpoint.rng_state(),
        }
        checkpoint.save_atomic(state, self.job.work / LAST)

    def _restore(self) -> None:
        """Go on from the last checkpoint of rank 0's machine: only one is sure to be there."""
        content: list[Any] = [None]
        path = self.job.work / LAST
        if self.ranks.is_main and path.exists():
            checkpoint.load(path, self.job.digest)
            content = [path.read_bytes()]
        if dist.is_initialized():
            dist.broadcast_object_list(content, src=0)
        if content[0] is not None:
            state = checkpoint.load(io.BytesIO(content[0]), self.job.digest)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.scheduler.load_state_dict(state["scheduler"])
            checkpoint.set_rng_state(state["rng"])
            self.progress = Progress(**state["progress"])

    def _rate(self) -> float:
        return float(self.scheduler.get_last_lr()[0])

    def _sum_over_ranks(self, values: list[float]) -> list[float]:
        if not dist.is_initialized():
            return values
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return [float(value) for value in total.tolist()]
