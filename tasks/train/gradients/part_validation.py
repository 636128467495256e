"""Measuring the validation split of a graph in parts while training."""

from __future__ import annotations

import torch

from models.base import GraphModel
from tasks.inference.parts import PartPredictor
from tasks.kinds.of import kind_of
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.ranges import Ranges
from tasks.train.job import AnyJob
from tasks.train.ranks.collectives import from_main
from tasks.train.state.validation import Validation
from tasks.train.strategies.base import Ranks


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
