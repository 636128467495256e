"""The end of a training whose outcome is a vector for each node: a head, the validation split, and the files."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from configs.errors import RecipeError
from models.vectors.base import VectorModel
from tasks.arrays import Array
from tasks.processes.mapped import rows_at_random
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.train.embeddings.host_tables import set_around_table
from tasks.train.job import BEST, AnyJob
from tasks.train.node_vectors.heads import fit_head
from tasks.train.state import checkpoint
from tasks.train.state.journal import Journal
from tasks.train.state.validation import Validation
from tasks.train.strategies.base import Ranks

_TINY = 1e-30


def finish_vectors(job: AnyJob, store: GraphStore, vectors: Array | Tensor, journal: Journal) -> None:
    """Fit the head to vectors, float32 (N, dim), measure the validation split, and write the model.

    Raises RecipeError: vectors that are not finite.
    """
    progress, manifest = journal.progress, store.manifest
    journal.write_progress("fitting the head", force=True)
    table = torch.from_numpy(vectors) if isinstance(vectors, np.ndarray) else vectors
    lengths = table.norm(dim=1)
    bad = int((~lengths.isfinite()).sum())
    if bad:
        raise RecipeError(
            f"model.name={job.model.name} gave {bad:,} of {len(lengths):,} nodes vectors that are not finite, or too "
            f"long for float32: the training diverged. Lower train.learning_rate, which makes another training"
        )
    if getattr(job.model, "normalize", False):
        table /= lengths.clamp(min=_TINY)[:, None]
    model = set_around_table(job.model, graph_facts(manifest), table)
    assert isinstance(model, VectorModel)
    model.lengths = lengths
    validation = Validation(job, Ranks(), store, torch.device("cpu")) if manifest.splits.get("valid") else None

    def score() -> float:
        assert validation is not None
        return validation.evaluator.score(validation.measure(model))

    asked_strength: float | None = getattr(job.model, "strength", None)
    with rows_at_random(table):
        # Accuracy of label columns has its own threshold, and a half of the chance is right for that.
        for_f1 = validation is not None and validation.evaluator.metric != "accuracy"
        strength = fit_head(model, store, asked_strength, score if validation else None, for_f1=for_f1)
        metrics = validation.measure(model) if validation else {}
    if strength is not None:
        print(f"head: C = {strength:g}")
    progress.epoch = 1
    progress.take_score(validation.evaluator.score(metrics) if validation else -math.inf)
    if validation is not None:
        journal.record({f"valid/{name}": number for name, number in metrics.items()})
    state = checkpoint.best_state(model, job.digest, 1, progress.best_metric)
    checkpoint.save_atomic(state, job.work / BEST)
