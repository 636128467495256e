"""A model and a graph, opened to score with: what evaluating and serving have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.ids import IdMap, class_names
from tasks.storage.manifests import DatasetManifest, PartitionManifest

if TYPE_CHECKING:
    from models.base import GraphModel
    from tasks.inference.predictor import Predictor


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


def open_model(
    graph: Path,
    dataset: Path,
    load: Callable[[], GraphModel],
    *,
    device: str,
    threads: int,
    batch_size: int,
    scratch: Path,
) -> Opened:
    """Open the artifacts of partition and ingest, and the model that `load` returns.

    Args:
        device: `auto`, `cpu` or `cuda`.
        threads: CPU threads of torch; 0: its own choice.
        batch_size: rows that are scored at a time.
        scratch: folder with room for layers' outputs.

    Raises:
        RecipeError: the device cannot be had.
    """
    import torch

    from tasks.inference.predictor import Predictor
    from tasks.processes.device import choose_device

    store = GraphStore(graph, PartitionManifest.model_validate_json((graph / "manifest.json").read_text()))
    data = DatasetStore(dataset, DatasetManifest.model_validate_json((dataset / "manifest.json").read_text()))
    place = choose_device(device)
    if threads:
        torch.set_num_threads(threads)
    model = load().to(place)
    predictor = Predictor(store, device=place, batch_size=batch_size, scratch=scratch)
    return Opened(store, data, IdMap(store, data), class_names(data), model, predictor)
