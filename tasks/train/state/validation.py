"""Measuring the validation split while training."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from configs.errors import DataError
from models.base import GraphModel
from tasks.evaluators.several import make_evaluator
from tasks.inference.parts import PartPredictor
from tasks.inference.predictor import WHOLE_GRAPH_BYTES, Predictor
from tasks.kinds.of import kind_of, predict
from tasks.processes.device import use_threads
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.ranges import Ranges
from tasks.storage.graph_store import GraphStore
from tasks.train.job import AnyJob
from tasks.train.ranks.collectives import from_main
from tasks.train.strategies.base import Ranks

_SHARE = 8
"""Of a GPU's memory, a part in so many may go to the graph that is measured."""


class Validation:
    """Predicts the validation split of the whole graph on rank 0, in float32, and tells all ranks."""

    def __init__(self, job: AnyJob, ranks: Ranks, store: GraphStore, device: torch.device) -> None:
        """Raises DataError where there is no such split."""
        manifest = store.manifest
        if not manifest.splits.get("valid"):
            raise DataError(f"{manifest.dataset} has no validation split, and that chooses the best epoch; give it one")
        self.job, self.ranks = job, ranks
        self.evaluator = make_evaluator(job.evaluate.evaluator, manifest)
        # Not evaluate.batch_size: it changes the last bits of metrics, and training must not depend on it.
        self.predictor = Predictor(store, device=device, scratch=job.work, whole_graph_bytes=_whole_graph_bytes(device))

    def measure(self, model: GraphModel) -> dict[str, float]:
        """Return the metrics, the same on all ranks."""
        metrics: dict[str, float] = {}
        if self.ranks.is_main:
            with self._all_threads():
                metrics = self.evaluator(predict(self.predictor, model, "valid"))
        return from_main(metrics)

    @contextlib.contextmanager
    def _all_threads(self) -> Iterator[None]:
        """Compute with the threads of this machine's ranks, which wait meanwhile."""
        threads = self.job.train.threads
        # Elsewhere than on one machine how many ranks are on one may change from attempt to attempt, and sums with it.
        use_threads(threads * (self.ranks.world_size if self.ranks.machines == 1 else 1))
        try:
            yield
        finally:
            use_threads(threads)


class PartValidation(Validation):
    """Every rank predicts the nodes of its own parts, in float32; rank 0 measures them and tells all."""

    def __init__(self, job: AnyJob, ranks: Ranks, graph: PartGraph, ranges: Ranges, device: torch.device) -> None:
        """Raises DataError where there is no such split."""
        super().__init__(job, ranks, graph, device)
        self._parts = PartPredictor(graph, ranges, device=device, scratch=job.work)

    def measure(self, model: GraphModel) -> dict[str, float]:
        """Return the metrics, the same on all ranks."""
        prediction = kind_of(self._parts.graph.manifest).score_parts(self._parts, model, "valid")
        return from_main(self.evaluator(prediction) if self.ranks.is_main else {})


def _whole_graph_bytes(device: torch.device) -> int:
    """Return up to which size a graph goes through all layers at once: on a GPU an eighth of its memory.

    Of all memory, not of what is free: another way rounds otherwise, and must not depend on what else runs there.
    """
    if device.type != "cuda":
        return WHOLE_GRAPH_BYTES
    return max(WHOLE_GRAPH_BYTES, torch.cuda.get_device_properties(device).total_memory // _SHARE)
