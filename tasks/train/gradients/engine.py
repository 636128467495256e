"""The training loop: one for node, link and graph tasks, for one rank and for many.

Everything random comes from counters (seed, epoch, step, rank), so a run that was killed and goes on from its last
checkpoint takes the same steps as one that was left alone (with three ranks or more up to the order of sums over them).
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import torch

from configs.errors import RecipeError
from configs.registry import LOADERS, STRATEGIES
from models.facts import GraphFacts
from tasks.processes.device import choose_device, use_threads, wait_for
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.rows.features import FeatureSource
from tasks.storage.graph_store import GraphStore
from tasks.train.embeddings.later_rows import clear_later_rows
from tasks.train.gradients import row_probes
from tasks.train.gradients.batches import Batches
from tasks.train.gradients.meter import Meter
from tasks.train.gradients.model import build_model
from tasks.train.gradients.optimizers import describe_rate
from tasks.train.gradients.part_validation import PartValidation
from tasks.train.gradients.pipeline import Pipeline, pipeline_sizes
from tasks.train.gradients.precision import (
    check_precision,
    feature_dtype,
    set_determinism,
    set_kernels,
    step_products,
)
from tasks.train.gradients.saving import Checkpoints
from tasks.train.gradients.steps import Optimization, count_labels
from tasks.train.job import LAST, GnnJob
from tasks.train.labels.scale import training_facts
from tasks.train.loaders.base import Loader, TrainingData
from tasks.train.loaders.config_base import resolve_loader
from tasks.train.ranks.collectives import from_main, joined, largest, sum_over_ranks, wait_for_all
from tasks.train.state import checkpoint
from tasks.train.state.journal import Journal, Progress
from tasks.train.state.validation import Validation
from tasks.train.strategies.base import Ranks, Strategy

if TYPE_CHECKING:
    from tasks.train.gradients.whole_step import WholeStep

_RECORDS_AN_EPOCH = 20
_MOST_STEPS = 1e9  # between two looks at the clock


def train(job: GnnJob, ranks: Ranks) -> None:
    """Train to the end, from the last checkpoint if there is one.

    Raises RecipeError: options that do not fit the data, or a training that diverged.
    """
    use_threads(job.train.threads)
    device = choose_device(job.train.device, ranks.local_rank, share=job.train.share_gpu)
    check_precision(job.train, device)
    with joined(ranks, device, share_gpu=job.train.share_gpu):
        Trainer(job, ranks, device).run()


class Trainer:
    """One rank of a training."""

    def __init__(self, job: GnnJob, ranks: Ranks, device: torch.device) -> None:
        """Open the graph, build the model, and restore the last checkpoint."""
        self.job, self.config, self.ranks, self.device = job, job.train, ranks, device
        set_determinism(self.config)
        set_kernels(self.config, device)
        if job.probes is not None:
            print(row_probes.judge(job))
        store = GraphStore.open(job.graph)
        strategy: Strategy = STRATEGIES.create(self.config.strategy, ranks)
        self._makes_together = strategy.makes_together
        labelled = self._labelled(store)
        graph = strategy.open(labelled)
        torch.manual_seed(job.seed)
        if strategy.makes_together:
            facts = training_facts(graph, over_ranks=True)
        else:
            facts = GraphFacts(**from_main(asdict(training_facts(store))))
        # Resolved on the whole graph: on a part of it `auto` might choose another loader.
        options = resolve_loader(self.config, job.model, store.manifest)
        facts = replace(facts, **options.facts(job.model, store.manifest))
        self.model = build_model(job, facts, ranks, strategy.ranges)
        clear_later_rows(self.model, store)
        self.model.to(device)
        self.progress = Progress()
        if job.warm is not None and not from_main((job.work / LAST).exists()):
            from tasks.train.warm.warm_weights import begin_warm

            self.progress.cold_because = begin_warm(self.model, job.warm, store, ranks)
        self.validation = self._make_validation(store, graph, strategy)

        features = FeatureSource.of(graph, self.model, feature_dtype(self.config), strategy.rows)
        scratch = job.work if graph is labelled else job.work / f"part-{ranks.rank}"  # ranks share what is the same
        scratch.mkdir(exist_ok=True)
        data = TrainingData.of(self.model, graph, features, seed=job.seed, scratch=scratch)
        loader: Loader = LOADERS.create(options, data)
        loader.to(device)
        if self.config.sampling == "device":
            from tasks.train.loaders.on_device import move_sampling

            print(move_sampling(loader, device))
        wait_for(device)  # threads that make batches read what was moved there on a stream of their own
        self.batches = Batches(loader, strategy, self.config, job.seed)
        if strategy.makes_together:
            self.batches.rehearse()
        # Whether a step's batches may count unequally; all ranks must agree, since they sum over ranks then.
        self._weighs = ranks.world_size > 1 and sum_over_ranks([float(not loader.has_equal_batches())])[0] > 0
        # Divisor that keeps shares near one, and float16's gradients in range; the same on all ranks.
        self._usual_labels = from_main(max(1.0, loader.num_seeds / self.batches.batches_per_round))
        self.epochs_per_round = strategy.epochs_per_round

        self.steps = -(-self.batches.batches_per_round // self.config.accumulate_steps)  # a round
        total_steps = self.steps * self.batches.rounds
        wrapped, task_type = strategy.wrap(self.model), store.manifest.task_type
        self.optimization = Optimization(
            self.config, self.model, wrapped, task_type, ranks, total_steps, job.class_weights
        )
        self.checkpoints = Checkpoints(job, self.model, self.optimization, ranks, strategy.ranges)
        self._checkpoint_at = time.monotonic()
        self.progress = self.checkpoints.restore() or self.progress
        self._checkpoint_step = self._next_look = self.progress.step
        self.meter = Meter(self.progress, self.config.learning_rate)
        self.whole: WholeStep | None = None
        if self.config.cuda_graph:
            from tasks.train.gradients.whole_step import WholeStep

            self.whole = WholeStep(self.model, loader, self.optimization)
            self.meter.counted_edges = self.whole.edges
        self.journal = Journal(
            job.work, self.progress, total_steps, self.config.epochs, ranks.world_size, writes=self.checkpoints.writes
        )
        rate = describe_rate(self.config, ranks.world_size, total_steps)
        if ranks.is_main:
            print(rate)
        self.journal.write_progress(rate, force=True)

    def _labelled(self, store: GraphStore) -> GraphStore:
        """Return the graph with the labels that are learnt from, a teacher's predictions among them."""
        if self.job.teacher is None:
            return store
        from tasks.train.labels.predicted import with_predicted_labels

        assert self.config.self_training is not None
        return with_predicted_labels(store, self.job.teacher, self.config.self_training.min_probability)

    def _make_validation(self, store: GraphStore, graph: GraphStore, strategy: Strategy) -> Validation:
        """Return what measures the validation split. Raises RecipeError: a model that parts cannot compute."""
        if not isinstance(graph, PartGraph):
            return Validation(self.job, self.ranks, store, self.device)
        assert strategy.ranges is not None
        if not self.model.is_layered:
            raise RecipeError(
                f"train.strategy={self.config.strategy.name} computes vectors layer by layer, and model.name="
                f"{self.job.model.name} does more with these options; take train.strategy=data_parallel"
            )
        return PartValidation(self.job, self.ranks, graph, strategy.ranges, self.device)

    def run(self) -> None:
        """Train round by round (an epoch, or one of each rank's at once); validate, keep the best, stop early."""
        config = self.config
        ahead, threads = pipeline_sizes(config, self.device, alone=self._makes_together)
        batches = self.batches
        with Pipeline(
            batches.make,
            self._next_batch(),
            batches.total,
            ahead=ahead,
            threads=threads,
            device=self.device,
            agree=largest if self._makes_together else None,
        ) as pipeline:
            patience = math.inf if config.patience is None else config.patience
            while self.progress.epoch < config.epochs and self.progress.evaluations_without_gain < patience:
                with step_products(config):
                    self._train_round(pipeline)
                self._finish_round()
        self._save_last()
        self.checkpoints.finish()
        wait_for_all()  # where each machine keeps its own outcome, all have one from the same moment on
        self.journal.finish(checkpoint.count_parameters(self.model), str(self.device))

    def _next_batch(self) -> int:
        """Return the number of the next batch."""
        rounds = self.progress.epoch // self.epochs_per_round
        done = self.progress.step_in_epoch * self.config.accumulate_steps
        per_round = self.batches.batches_per_round
        return rounds * per_round + min(done, per_round)  # a round's last step may have fewer

    def _train_round(self, pipeline: Pipeline) -> None:
        """Take the remaining steps of a round."""
        progress = self.progress
        every = max(1, self.steps // _RECORDS_AN_EPOCH)  # always the same steps
        self.model.train()
        while progress.step_in_epoch < self.steps:
            began = time.perf_counter()
            rate = self.optimization.rate
            self._step(pipeline)
            recorded = self.steps > 1 and progress.step_in_epoch % every == 0
            if recorded or progress.step_in_epoch == self.steps:
                self.meter.read()
            progress.epoch_totals[3] += time.perf_counter() - began
            if recorded:
                self.journal.record({"loss": self.meter.loss, "learning_rate": rate})  # this rank's, of its last batch
            self.journal.write_progress()
            self._save_in_between()

    def _step(self, pipeline: Pipeline) -> None:
        """Apply the gradient of the mean loss over all labels of a step's batches.

        How many labels there are is known once the last batch is made, so the sum is divided at the end. With one
        batch, or equal ones on all ranks, the mean of means is the same, and ranks exchange nothing.
        """
        if self.whole is not None:
            self._whole_step(self.whole)
            return
        progress = self.progress
        first = self._next_batch()
        batches_per_round = self.batches.batches_per_round
        count = min(self.config.accumulate_steps, batches_per_round - first % batches_per_round)
        weighs, shares = self._weighs or count > 1, 0.0
        for number in range(first, first + count):
            batch = next(pipeline)
            share = count_labels(batch) / self._usual_labels if weighs else 1.0
            shares += share
            # Dropout must not depend on what was drawn before: a resumed run has not drawn it.
            torch.manual_seed(self.batches.dropout_key(number))
            loss = self.optimization.backward(batch, share, last=number == first + count - 1)
            self.meter.add(loss, batch.num_seeds, batch.num_edges)
        divisor = sum_over_ranks([shares])[0] / self.ranks.world_size if weighs else 1.0
        self.optimization.step(progress.step + 1, divisor)
        progress.step += 1
        progress.step_in_epoch += 1

    def _whole_step(self, whole: WholeStep) -> None:
        """Take a step of one batch, which the GPU makes and learns from at once."""
        number = self._next_batch()
        positions, key = self.batches.request(number)
        self.meter.add(whole.take(positions, key, self.batches.dropout_key(number)), len(positions))
        self.optimization.advance()
        self.progress.step += 1
        self.progress.step_in_epoch += 1

    def _finish_round(self) -> None:
        progress, before = self.progress, self.progress.epoch
        loss, seeds, edges, seconds = sum_over_ranks(progress.epoch_totals)
        seconds /= self.ranks.world_size
        for i, value in enumerate((seeds, edges, seconds)):
            progress.run_totals[i] += value
        progress.epoch += self.epochs_per_round
        progress.step_in_epoch, progress.epoch_totals = 0, [0.0] * 4
        record = {
            "train/loss": loss / max(1.0, seeds),
            "learning_rate": self.optimization.rate,
            "seeds_per_second": seeds / seconds,
            "edges_per_second": edges / seconds,
        }
        if progress.epoch == self.config.epochs or self._passed(before, self.config.eval_every):
            record.update(self._validate())
        self.journal.record(record)
        if self._passed(before, self.config.checkpoint_every):
            self._save_last()

    def _passed(self, before: int, every: int) -> bool:
        """Whether a multiple of `every` epochs was reached since epoch `before`."""
        return self.progress.epoch // every > before // every

    def _validate(self) -> dict[str, float]:
        self.journal.write_progress("validating", force=True)
        metrics = self.validation.measure(self.model)
        score = self.validation.score(metrics)
        progress = self.progress
        # The first validation always counts: a metric that is nan must not leave a run without a best checkpoint.
        if score > progress.best_metric or progress.best_epoch == 0:
            progress.best_metric, progress.best_epoch = score, progress.epoch
            progress.evaluations_without_gain = 0
            self.checkpoints.save_best(progress)
        else:
            progress.evaluations_without_gain += 1
        return {f"valid/{name}": number for name, number in metrics.items()}

    # ---- checkpoints

    def _save_in_between(self) -> None:
        """Keep a long epoch's steps: a checkpoint every so many minutes of rank 0's clock.

        Ranks save at the same step, as a checkpoint holds what they counted together. They look at the clock after half
        of the steps that are left until then, and so a few times for each checkpoint, not in every step.
        """
        step = self.progress.step
        if step < self._next_look:
            return
        waited = from_main(time.monotonic() - self._checkpoint_at)
        left = 60 * self.config.checkpoint_minutes - waited
        if left <= 0:
            self._save_last()
        pace = max(waited, 1e-6) / max(1, step - self._checkpoint_step)
        self._next_look = step + max(1, int(min(left / pace, _MOST_STEPS) / 2))

    def _save_last(self) -> None:
        """Write a checkpoint; all ranks together."""
        self.meter.read()
        self._checkpoint_at, self._checkpoint_step = time.monotonic(), self.progress.step
        self.journal.note_checkpoint()
        self.checkpoints.save_last(self.progress, sum_over_ranks(self.progress.epoch_totals))
