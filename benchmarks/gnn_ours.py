"""graphmill's side: the training that a recipe's worker runs, held at each step until the parent asks for more."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gnn_graphs import graph_recipe
from benchmarks.gnn_worker import Arrays, Contender, Operator, Settings, shuffled
from configs.schema import Recipe
from models.kernels.sparse.adjacency import Adjacency
from tasks.kinds.of import predict
from tasks.train.gradients import engine, family
from tasks.train.gradients.pipeline import Pipeline
from tasks.train.job import Job
from tasks.train.strategies.base import Ranks

_NEVER = 1_000_000
Array = np.ndarray[Any, Any]


class Gate:
    """Lets another thread take so many steps, and waits until they are taken."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._allowed = self._taken = 0
        self.ended = False
        self.error: BaseException | None = None

    def enter(self) -> None:
        """Wait for leave to take a step (the training's thread)."""
        with self._changed:
            self._changed.wait_for(lambda: self._taken < self._allowed)

    def leave(self) -> None:
        """A step is taken."""
        with self._changed:
            self._taken += 1
            self._changed.notify_all()

    def close(self, error: BaseException | None) -> None:
        """No step will follow."""
        with self._changed:
            self.ended, self.error = True, error
            self._changed.notify_all()

    def allow(self, steps: int) -> None:
        """Let `steps` more be taken; return when they are, or when the training has ended."""
        with self._changed:
            self._allowed += steps
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._taken == self._allowed or self.ended)
        if self.error is not None:
            raise self.error


def training_recipe(settings: Settings) -> Recipe:
    """Return the recipe of a `Training`."""
    options = settings.options
    epochs, overrides = options.get("epochs", _NEVER), options.get("overrides", ())
    fanout = list(settings.fanout)
    if "train.loader.first_hop=precomputed" in overrides:
        fanout[-1] = -1  # it is the mean of all neighbours
    batches = [f"train.loader.fanout={fanout}", f"train.loader.batch_size={settings.batch_size}"]
    return graph_recipe(
        options["recipe"],
        (
            f"seed={settings.seed}",
            f"model.hidden_dim={settings.hidden_dim}",
            f"model.num_layers={len(settings.fanout)}",
            f"model.dropout={settings.dropout}",
            *([] if "train.loader=full" in overrides else batches),
            f"train.learning_rate={settings.learning_rate}",
            "train.schedule=constant",
            f"train.epochs={epochs}",
            f"train.eval_every={epochs}",
            f"train.checkpoint_every={_NEVER}",
            f"train.checkpoint_minutes={_NEVER}",
            f"train.threads={settings.threads}",
            f"train.device={settings.device}",
            *overrides,
        ),
    )


class Training(Contender):
    """The loop of `graphmill run` in a thread.

    Options: `recipe` (a graph of gnn_graphs), `overrides` (of the recipe), `epochs` (else it never ends). The recipe's
    own validations and checkpoints are left out: peers have none.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.recipe = training_recipe(settings)
        self.gate = Gate()
        self._scratch = tempfile.TemporaryDirectory(prefix="graphmill-benchmark-", ignore_cleanup_errors=True)
        self.engine = self._start()
        train = Arrays(settings.graph)["train_idx"]
        self.positions = shuffled(np.arange(len(train), dtype=np.int64), settings.batch_size, settings.seed)
        self.drawn = 0
        self.jobs = {"train": self.gate.allow, "sample": self._sample, "gather": self._gather}

    def _start(self) -> Any:
        """Train in a thread; return the engine that is made for it."""
        gate, made = self.gate, threading.Event()
        engines: list[Any] = []

        class Paced(engine.GradientEngine):
            def __init__(self, *args: Any) -> None:
                super().__init__(*args)
                engines.append(self)
                made.set()

            def _step(self) -> None:
                gate.enter()
                super()._step()
                gate.leave()

        def run() -> None:
            error: BaseException | None = None
            try:
                family.train(job, Ranks())
            except BaseException as raised:
                error = raised
            gate.close(error)
            made.set()

        job = Job.make(self.recipe, Path(self.settings.graph), "benchmark", Path(self._scratch.name))
        engine.GradientEngine = Paced  # what `train` makes
        threading.Thread(target=run, daemon=True, name="training").start()
        made.wait()
        if gate.error is not None:
            raise gate.error
        return engines[0]

    def versions(self) -> dict[str, str]:
        import numba

        return {"torch": torch.__version__, "numba": numba.__version__}

    def _sample(self, units: int) -> None:
        loader = self.engine.batches.loader

        def sample(positions: Array, key: int) -> Any:
            seeds = np.sort(np.asarray(loader.seeds[positions], np.int64))
            return loader.neighborhoods.sampler.sample(seeds, key)

        self._make(units, sample)

    def _gather(self, units: int) -> None:
        self._make(units, self.engine.batches.loader.batch)

    def _make(self, units: int, make: Callable[[Array, int], Any]) -> None:
        """Make so many batches as the pipeline makes them, on all threads that a contender has."""
        threads, first = self.settings.threads, self.drawn + 1
        self.drawn += units
        chosen = [next(self.positions) for _ in range(units)]
        options = {"ahead": threads, "threads": threads, "device": torch.device("cpu")}
        with Pipeline(lambda key: make(chosen[key - first], key), first, first + units, **options) as pipeline:
            for _ in pipeline:
                pass

    def fit(self, epochs: int) -> dict[str, float]:
        """Train to the end of the recipe's epochs; test accuracy by full neighbourhoods."""
        assert self.recipe.train.epochs == epochs
        self.gate.allow(self.engine.steps_a_round * epochs)
        while not self.gate.ended:
            self.gate.allow(0)
        validation = self.engine.validation
        metrics: dict[str, float] = validation.evaluator(predict(validation.predictor, self.engine.model, "test"))
        return {"accuracy": metrics["accuracy"]}


def whole_adjacency(arrays: Arrays, device: str) -> Adjacency:
    """The whole graph's in-edges, ids int32."""
    indptr, indices = (torch.from_numpy(arrays[f"csc_{name}"]).to(device) for name in ("indptr", "indices"))
    return Adjacency(indptr, indices, arrays.num_nodes)


def tiny_adjacency(like: Adjacency) -> Adjacency:
    """Three nodes in a ring: compiles a kernel before memory is watched."""
    indptr, indices = (torch.tensor(values, device=like.indptr.device) for values in ([0, 1, 2, 3], [1, 2, 0]))
    return Adjacency(indptr, indices.to(like.indices.dtype), 3)


class Aggregation(Operator):
    """GCN's aggregation by our sparse product."""

    def prepare(self, arrays: Arrays) -> None:
        from models.kernels.sparse.spmm import weighted_sum

        self.adjacency, self.multiply = whole_adjacency(arrays, self.settings.device), weighted_sum
        dtype = getattr(torch, self.settings.options.get("dtype", "float32"))
        few = torch.ones(
            3, self.settings.options["width"], dtype=dtype, device=self.settings.device, requires_grad=True
        )
        self.multiply(tiny_adjacency(self.adjacency), few).sum().backward()

    def forward(self) -> torch.Tensor:
        return self.multiply(self.adjacency, self.x)

    def traffic(self) -> dict[str, float]:
        return {"bytes": moved_bytes(self.adjacency, self.settings.options["width"], self.x.element_size())}


def moved_bytes(adjacency: Adjacency, width: int, item_size: int) -> float:
    """Bytes that a forward and a backward pass move where no row is found in a cache: rows read, ids, results."""
    rows = (adjacency.num_edges + adjacency.num_dst) * width * item_size
    return 2.0 * (rows + adjacency.num_edges * adjacency.indices.element_size() + adjacency.num_dst * 8)


class Attention(Operator):
    """GAT's operator in one pass."""

    job = "attend"

    def prepare(self, arrays: Arrays) -> None:
        from models.kernels.attention.attention import gat_attention
        from models.kernels.backends import take_triton

        device, heads, width = self.settings.device, self.settings.heads, self.settings.options["width"]
        take_triton(device == "cuda")
        self.adjacency, self.attend = whole_adjacency(arrays, device), gat_attention
        dtype = getattr(torch, self.settings.options.get("dtype", "float32"))
        few = torch.ones(3, heads, width // heads, dtype=dtype, device=device)
        inputs = [few, torch.ones(3, heads, device=device), torch.ones(3, heads, device=device)]
        inputs = [tensor.requires_grad_() for tensor in inputs]
        self.attend(tiny_adjacency(self.adjacency), *inputs, 0.2).sum().backward()

    def forward(self) -> torch.Tensor:
        return self.attend(self.adjacency, *self.inputs, 0.2)
