"""Begin with the weights of an earlier snapshot's model, if all of them fit.

Weights have the shape of features, classes and layers, which snapshots share. What has a row for each node (learnable
embeddings) follows the nodes: those that the earlier model knew keep their rows, new ones begin as they would anyway.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.compute as compute
import torch
from torch import Tensor

from configs.errors import IntegrityError
from models.base import GraphModel
from tasks.dataset_store import DatasetStore
from tasks.evaluate.ids import IdMap
from tasks.graph_store import Array, GraphStore
from tasks.manifests import DatasetManifest, PartitionManifest
from tasks.train import checkpoint
from tasks.train.collectives import from_main
from tasks.train.embeddings import sparse_embedding
from tasks.train.strategies.base import Ranks
from tasks.train.warm_start import WarmStart

_NODE_ROWS = ("encoder.embedding.weight", "encoder.rows.weight")


class DoesNotFitError(Exception):
    """The earlier weights cannot be used; the message says why."""


def begin_warm(model: GraphModel, warm: WarmStart, store: GraphStore, ranks: Ranks) -> str:
    """Load the earlier weights; all ranks together.

    Args:
        model: changed, unless something does not fit.
        warm: the earlier training; its folders are read by rank 0 alone.
        store: the present graph.
        ranks: of this job.

    Returns:
        why the weights are not used; empty where they are.
    """
    state: dict[str, Tensor] | None = None
    why = ""
    if ranks.is_main:
        try:
            state = _fitted(model, warm, store)
        except (DoesNotFitError, IntegrityError) as error:
            why = str(error)
    why = from_main(why)
    if why:
        return why
    embedding = sparse_embedding(model)
    table = None if state is None or embedding is None else state.pop(_NODE_ROWS[0])
    state = from_main(state)
    assert state is not None
    model.load_state_dict(state)
    if embedding is not None:
        embedding.begin_with(table)
    return ""


def _fitted(model: GraphModel, warm: WarmStart, store: GraphStore) -> dict[str, Tensor]:
    """Return the earlier state in the model's own shapes. Raises DoesNotFitError."""
    earlier: dict[str, Tensor] = checkpoint.load(warm.checkpoint, mapped=True)["model"]
    own = model.state_dict()
    if earlier.keys() != own.keys():
        raise DoesNotFitError(f"the model has other weights: {', '.join(sorted(earlier.keys() ^ own.keys())[:4])}")
    _check_codes(warm)
    by_node = [name for name in _NODE_ROWS if name in own]
    for name, tensor in own.items():
        skip = 1 if name in by_node else 0
        if earlier[name].shape[skip:] != tensor.shape[skip:]:
            raise DoesNotFitError(f"{name} has the shape {_shown(earlier[name])}, here it is {_shown(tensor)}")
    if not by_node:
        return earlier
    rows, known = _known_rows(warm, store)
    for name in by_node:
        table = own[name].detach().cpu().clone()
        table[rows] = earlier[name][known]
        earlier = {**earlier, name: table}
    return earlier


def _shown(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "()"


def _check_codes(warm: WarmStart) -> None:
    """Classes and categories must have the numbers that they had. Raises DoesNotFitError."""
    if warm.dataset is None or warm.own_dataset is None or warm.dataset == warm.own_dataset:
        return
    earlier, own = _dataset(warm.dataset), _dataset(warm.own_dataset)
    for name in own.manifest.tables:
        counted = name == "classes" or name.startswith("categories/")
        if counted and not (name in earlier and earlier.read(name).equals(own.read(name))):
            raise DoesNotFitError(f"{name} are other ones, or are numbered otherwise, in the data as it is now")


def _known_rows(warm: WarmStart, store: GraphStore) -> tuple[Tensor, Tensor]:
    """Return nodes of the present graph that the earlier one had, and what they were called there.

    Nodes are told by their ids in the data set, or, where that was ingested anew, by the users' own.
    """
    if warm.graph is None or warm.dataset is None or warm.own_dataset is None:
        raise DoesNotFitError("the graph that it was trained on is gone, and its model has a row for each node")
    text = (warm.graph / "manifest.json").read_text(encoding="utf-8")
    earlier = GraphStore(warm.graph, PartitionManifest.model_validate_json(text))
    if warm.dataset == warm.own_dataset:
        then, now = np.asarray(earlier["node_ids"]), np.asarray(store["node_ids"])
        order = np.argsort(then)
        place = np.minimum(np.searchsorted(then, now, sorter=order), len(then) - 1)
        rows = np.flatnonzero(then[order[place]] == now)
        return torch.from_numpy(rows), torch.from_numpy(order[place[rows]])
    known = compute.index_in(_names(store, warm.own_dataset), value_set=_names(earlier, warm.dataset))
    rows = np.flatnonzero(np.asarray(known.is_valid()))
    return torch.from_numpy(rows), torch.from_numpy(np.asarray(known.drop_null()).astype(np.int64))


def _names(graph: GraphStore, dataset: Path) -> Array:
    names: Array = IdMap(graph, _dataset(dataset)).lookup(np.arange(graph.manifest.num_nodes))
    return names


def _dataset(folder: Path) -> DatasetStore:
    text = (folder / "manifest.json").read_text(encoding="utf-8")
    return DatasetStore(folder, DatasetManifest.model_validate_json(text))
