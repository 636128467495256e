"""Training by gradients of batches: node, link and graph tasks, on one rank and on many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from configs.errors import RecipeError
from configs.registry import EMBEDDINGS, LOADERS, STRATEGIES
from models.base import GraphModel
from models.facts import GraphFacts
from tasks.processes.device import wait_for
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.rows.features import FeatureSource
from tasks.storage.graph_store import GraphStore
from tasks.train.embeddings.build import ShardedEmbedding, clear_later_rows
from tasks.train.embeddings.host_tables import TABLE
from tasks.train.gradients.batches import Batches, Meter
from tasks.train.gradients.pipeline import Pipeline, pipeline_sizes
from tasks.train.gradients.sizes import refuse_excess
from tasks.train.gradients.steps import (
    Optimization,
    count_labels,
    describe_rate,
    feature_dtype,
    set_determinism,
    set_kernels,
    step_products,
)
from tasks.train.job import BEST, GnnJob
from tasks.train.labels.balance import Balance
from tasks.train.labels.learnt import training_facts, with_predicted_labels
from tasks.train.loaders.base import LabelLoader, Loader, TrainingData
from tasks.train.loaders.config_base import resolve_loader
from tasks.train.ranks.collectives import from_main, largest, sum_over_ranks, wait_for_all
from tasks.train.run import Engine, RoundTotals
from tasks.train.state import checkpoint
from tasks.train.state.validation import PartValidation, Validation
from tasks.train.strategies.base import Ranks, Strategy

_RECORDS_AN_EPOCH = 20


class GradientEngine(Engine):
    """One rank's model, loader and optimizer. A round is an epoch, or one of each rank's at once."""

    best_is_file = True

    def __init__(self, job: GnnJob, ranks: Ranks, device: torch.device) -> None:
        """Open the graph, build the model, and restore the last checkpoint."""
        super().__init__(job, ranks, mapped=job.train.embeddings.name == "sparse")
        self.config, self.device = job.train, device
        self.eval_every, self.checkpoint_every = self.config.eval_every, self.config.checkpoint_every
        set_determinism(self.config)
        set_kernels(self.config, device)
        store = GraphStore.open(job.graph)
        strategy: Strategy = STRATEGIES.create(self.config.strategy, ranks)
        self._makes_together = strategy.makes_together
        labelled = store
        if job.teacher is not None:
            assert self.config.self_training is not None
            labelled = with_predicted_labels(store, job.teacher, self.config.self_training.min_probability)
        graph = strategy.open(labelled)
        torch.manual_seed(job.seed)
        if strategy.makes_together:
            facts = training_facts(graph, over_ranks=True)
        else:
            facts = GraphFacts(**from_main(asdict(training_facts(store))))
        # Resolved on the whole graph: on a part of it `auto` might choose another loader.
        options = resolve_loader(self.config, job.model, store.manifest)
        facts = replace(facts, **options.facts(job.model, store.manifest))
        refuse_excess(job.model, job.train, facts, ranks)
        self.model: GraphModel = EMBEDDINGS.create(job.train.embeddings).build(job, facts, ranks, strategy.ranges)
        clear_later_rows(self.model, store)
        self.model.to(device)
        if job.warm is not None and self.last is None:
            from tasks.train.warm.earlier import begin_warm

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
        balance = None
        if getattr(options, "balance", "none") != "none":
            if graph is not labelled:
                raise RecipeError(
                    "train.loader.balance=classes draws from the whole training split, of which ranks of this strategy "
                    "hold parts; take train.strategy=data_parallel, or train.loss.class_weight=balanced"
                )
            assert isinstance(loader, LabelLoader)
            balance = Balance(loader, max(2, store.manifest.num_classes))
        self.batches = Batches(loader, strategy, self.config, job.seed, balance)
        if strategy.makes_together:
            self.batches.rehearse()
        # Whether a step's batches may count unequally; all ranks must agree, since they sum over ranks then.
        self._weighs = ranks.world_size > 1 and sum_over_ranks([float(not loader.has_equal_batches())])[0] > 0
        # Divisor that keeps shares near one; the same on all ranks.
        self._usual_labels = from_main(max(1.0, loader.num_seeds / self.batches.batches_per_round))
        self.epochs_per_round = strategy.epochs_per_round
        self.steps_a_round = -(-self.batches.batches_per_round // self.config.accumulate_steps)
        total_steps = self.steps_a_round * self.batches.rounds
        self.begin(total_steps, self.config.epochs)

        wrapped, task_type = strategy.wrap(self.model), store.manifest.task_type
        self.optimization = Optimization(
            self.config, self.model, wrapped, task_type, ranks, total_steps, job.class_weights
        )
        if balance is not None:
            self.optimization.log_prior = balance.log_prior(self.model.facts.out_dim).to(device)
        if self.last is not None:
            self._restore(self.last)
            self.last = self.last_tables = None
        self.meter = Meter(self.progress, self.config.learning_rate)
        rate = describe_rate(self.config, ranks.world_size, total_steps)
        if ranks.is_main:
            print(rate)
        self.journal.write_progress(rate, force=True)

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

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have threads make the batches, across the borders of epochs."""
        ahead, threads = pipeline_sizes(self.config, self.device, alone=self._makes_together)
        self.model.train()
        with Pipeline(
            self.batches.make,
            self._next_batch(),
            self.batches.total,
            ahead=ahead,
            threads=threads,
            device=self.device,
            agree=largest if self._makes_together else None,
        ) as self.pipeline:
            yield

    def _next_batch(self) -> int:
        rounds = self.progress.epoch // self.epochs_per_round
        done = self.progress.step_in_epoch * self.config.accumulate_steps
        per_round = self.batches.batches_per_round
        return rounds * per_round + min(done, per_round)  # a round's last step may have fewer

    def step(self) -> None:
        """Take a step; some times a round, always after the same steps, record this rank's loss of its last batch."""
        progress, rate = self.progress, self.optimization.rate
        with step_products(self.config):
            self._step()
        progress.count_step(0.0, 0)  # the meter counts the batches
        every = max(1, self.steps_a_round // _RECORDS_AN_EPOCH)
        is_recorded = self.steps_a_round > 1 and progress.step_in_epoch % every == 0
        if is_recorded or progress.step_in_epoch == self.steps_a_round:
            self.meter.read()
        if is_recorded:
            self.journal.record({"loss": self.meter.loss, "learning_rate": rate})

    def _step(self) -> None:
        """Apply the gradient of the mean loss over all labels of a step's batches.

        How many labels there are is known once the last batch is made, so the sum is divided at the end. With one
        batch, or equal ones on all ranks, the mean of means is the same, and ranks exchange nothing.
        """
        first, per_round = self._next_batch(), self.batches.batches_per_round
        count = min(self.config.accumulate_steps, per_round - first % per_round)
        weighs, shares = self._weighs or count > 1, 0.0
        for number in range(first, first + count):
            batch = next(self.pipeline)
            share = count_labels(batch) / self._usual_labels if weighs else 1.0
            shares += share
            # Dropout must not depend on what was drawn before: a resumed run has not drawn it.
            torch.manual_seed(self.batches.dropout_key(number))
            loss = self.optimization.backward(batch, share, last=number == first + count - 1)
            self.meter.add(loss, batch.num_seeds, batch.num_edges)
        divisor = sum_over_ranks([shares])[0] / self.ranks.world_size if weighs else 1.0
        self.optimization.step(self.progress.step + 1, divisor)

    def epochs_done(self) -> int:
        """Count a round's epochs."""
        return self.progress.epoch + self.epochs_per_round

    def end_round(self, totals: RoundTotals) -> dict[str, float]:
        """Say the mean loss, and how fast it went."""
        return {
            "train/loss": totals.loss / max(1.0, totals.samples),
            "learning_rate": self.optimization.rate,
            "seeds_per_second": totals.samples / totals.seconds,
            "edges_per_second": totals.edges / totals.seconds,
        }

    def validate(self) -> tuple[dict[str, float], float]:
        """Measure the model as it is."""
        metrics = self.validation.measure(self.model)
        self.model.train()
        return metrics, self.validation.evaluator.score(metrics)

    def judge(self, *, is_best: bool) -> None:
        """Write the best model."""
        if not is_best:
            return
        embedding = self.optimization.embedding
        tables = {} if embedding is None else self._whole({TABLE: embedding.weight})
        if self.journal.writes:
            state = checkpoint.best_state(self.model, self.job.digest, self.progress.epoch, self.progress.best_metric)
            state["model"] = {**state["model"], **tables}
            checkpoint.save_atomic(state, self.job.work / BEST)

    def state(self) -> dict[str, Any]:
        """Return the model and all that optimizes it."""
        self.meter.read()
        state = {
            "model": self.model.state_dict(),
            "label_scale": self.model.label_units,
            **self.optimization.state_dict(),
        }
        embedding = self.optimization.embedding
        if embedding is not None:
            tables = self._whole({TABLE: embedding.weight, **embedding.tensors()})
            state["model"] = {**state["model"], TABLE: tables.pop(TABLE, None)}
            state["embedding"] = tables
        return state

    def _whole(self, tables: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return tables with the rows of all ranks, where each has its own, on the ranks that write."""
        embedding = self.optimization.embedding
        if not isinstance(embedding, ShardedEmbedding):
            return tables
        return embedding.gathered(tables, self.job.work, writes=self.journal.writes)

    def _restore(self, state: dict[str, Any]) -> None:
        with checkpoint.going_on_from(self.last_path):
            self.model.load_state_dict(state["model"])
            if state["label_scale"]:  # a warm start's is that of the weights that it began with
                self.model.scale_labels(*state["label_scale"])
            self.optimization.load_state_dict(state)
        if self.optimization.embedding is not None:
            self.optimization.embedding.restore(self.last_tables)

    def end(self) -> None:
        """Where each machine has its own outcome, all have it from here on."""
        wait_for_all()

    @property
    def num_parameters(self) -> int:
        """Those of sparse embeddings included."""
        return checkpoint.count_parameters(self.model)
