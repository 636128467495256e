"""A model and a graph, opened to score with: what evaluating and serving have in common."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.ids import IdMap, class_names

if TYPE_CHECKING:
    import torch

    from models.base import GraphModel
    from tasks.inference.predictor import Predictor


@dataclass(frozen=True, kw_only=True)
class ScoringJob:
    """What every process that scores is told."""

    dataset: Path
    """Folder of the ingest artifact: ids and class names."""
    work: Path
    """Folder to write into, with room for layers' outputs."""
    batch_size: int
    """Rows that are scored at a time."""
    device: str
    """`auto`, `cpu` or `cuda`."""
    threads: int
    """CPU threads of torch; 0: its own choice."""
    memory: float = 1e9
    """Bytes that ranking triples may use."""


@dataclass(frozen=True)
class Opened:
    """A model, a graph, and the way back to its users' ids."""

    store: GraphStore
    dataset: DatasetStore
    ids: IdMap
    names: list[str] | None
    """Names of the data set's classes."""
    model: GraphModel
    """On the predictor's device."""
    predictor: Predictor


def open_model(job: ScoringJob, graph: Path, load: Callable[[], GraphModel], local_rank: int = 0) -> Opened:
    """Open the artifacts of partition (`graph`) and ingest, and the model that `load` returns.

    `local_rank`: where several ranks score together, this one's number on its machine. Raises RecipeError: the device
    cannot be had.
    """
    import torch

    from tasks.inference.predictor import Predictor
    from tasks.inference.rule import Rule

    store, dataset = GraphStore.open(graph), DatasetStore.open(job.dataset)
    model = load()
    device = device_of(model, job.device, local_rank)
    if job.threads:
        torch.set_num_threads(job.threads)
    model = model.to(device)
    predictor = Predictor(
        store, device=device, batch_size=job.batch_size, ranking_memory=int(job.memory), scratch=job.work
    )
    ids = IdMap(store, dataset)
    if isinstance(model, Rule):
        model.open(store, dataset, ids, predictor, Path(tempfile.mkdtemp(dir=job.work)))
    return Opened(store, dataset, ids, class_names(dataset), model, predictor)


def device_of(model: GraphModel, device: str, local_rank: int = 0) -> torch.device:
    """Return where a model scores: one that is a vector for each node on the CPU, in whose memory its table lies.

    Ranks take turns through the GPUs, as some trainings' do. Raises RecipeError: the device cannot be had.
    """
    from tasks.processes.device import choose_device

    return choose_device("cpu" if model.table is not None else device, local_rank, share=True)
