"""Begin with the weights of an earlier snapshot's model, if all of them fit and none learnt what is tested now.

Weights have the shape of features, classes and layers, which snapshots share. What has a row for each node (learnable
embeddings) follows the nodes: those that the earlier model knew keep their rows, new ones begin as they would anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import torch
from numpy.typing import NDArray
from torch import Tensor

from configs.errors import IntegrityError
from models.base import GraphModel
from models.facts import GraphFacts
from tasks.arrays import Array
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.ids import IdMap, relation_names
from tasks.storage.manifests import EDGE_CATEGORIES
from tasks.train.embeddings.build import ShardedEmbedding
from tasks.train.embeddings.host_tables import sparse_embedding
from tasks.train.job import WarmStart
from tasks.train.ranks.collectives import from_main
from tasks.train.state import checkpoint
from tasks.train.strategies.base import Ranks

_NODE_ROWS = ("encoder.embedding.weight", "encoder.rows.weight")
_FAR = 10.0
"""Times that labels' deviation may have changed, and deviations that their mean may have moved."""

LabelScale = tuple[list[float], list[float]]
"""Mean and deviation of each label."""


class DoesNotFitError(Exception):
    """The earlier weights cannot be used; the message says why."""


def begin_warm(model: GraphModel, warm: WarmStart, store: GraphStore, ranks: Ranks) -> str:
    """Load the weights of an earlier training, read by rank 0 alone, into the model; all ranks together.

    Returns:
        why the weights are not used, with the model unchanged; empty where they are.
    """
    state: dict[str, Tensor] | None = None
    scale: LabelScale | None = None
    why = ""
    if ranks.is_main:
        try:
            earlier = checkpoint.load(warm.checkpoint, mapped=True)
            state = _fitted(model, warm, store, earlier["model"])
            scale = _earlier_scale(model.facts, earlier["facts"])
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
    scale = from_main(scale)
    if scale is not None:
        model.scale_labels(*scale)
    if embedding is not None:
        embedding.begin_with(table)
    return ""


def _earlier_scale(facts: GraphFacts, earlier: dict[str, Any]) -> LabelScale | None:
    """Return mean and deviation by which the earlier model scales a regression's labels; its weights need them.

    Raises DoesNotFitError: they are far from those of the present labels.
    """
    if not facts.label_scale:
        return None
    mean, scale = earlier["label_mean"], earlier["label_scale"]
    for was, one, now, deviation in zip(mean, scale, facts.label_mean, facts.label_scale, strict=True):
        if max(deviation / one, one / deviation, abs(now - was) / one) > _FAR:
            raise DoesNotFitError(
                f"it learnt labels of {was:.4g} ± {one:.4g}, and now they are {now:.4g} ± {deviation:.4g}"
            )
    return list(mean), list(scale)


def _fitted(model: GraphModel, warm: WarmStart, store: GraphStore, earlier: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the earlier state in the model's own shapes. Raises DoesNotFitError."""
    weights, embedding = model.state_dict(), sparse_embedding(model)
    if isinstance(embedding, ShardedEmbedding):  # no rank has the whole table
        weights[_NODE_ROWS[0]] = torch.empty(embedding.num_embeddings, embedding.embedding_dim, device="meta")
    if earlier.keys() != weights.keys():
        raise DoesNotFitError(f"the model has other weights: {', '.join(sorted(earlier.keys() ^ weights.keys())[:4])}")
    before = earlier_graph(warm)
    _check_codes(warm)
    by_node = [name for name in _NODE_ROWS if name in weights]
    for name, tensor in weights.items():
        skip = 1 if name in by_node else 0
        if earlier[name].shape[skip:] != tensor.shape[skip:]:
            shapes = ["x".join(map(str, one.shape)) or "()" for one in (earlier[name], tensor)]
            raise DoesNotFitError(f"{name} has the shape {shapes[0]}, here it is {shapes[1]}")
    refuse_held_out_knowledge(warm, before, store)
    if not by_node:
        return earlier
    rows, earlier_rows = map(torch.from_numpy, same_of_all(warm, before, store))
    for name in by_node:
        if isinstance(embedding, ShardedEmbedding):
            table = embedding.beginning()
        else:
            table = weights[name].detach().cpu().clone()
        table[rows] = earlier[name][earlier_rows]
        earlier = {**earlier, name: table}
    return earlier


def _check_codes(warm: WarmStart) -> None:
    """Classes and categories must have the numbers that they had. Raises DoesNotFitError."""
    if warm.dataset == warm.own_dataset:
        return
    earlier, own = DatasetStore.open(warm.dataset), DatasetStore.open(warm.own_dataset)
    for name in own.manifest.tables:
        counted = name.partition("/")[0] in ("classes", "categories", EDGE_CATEGORIES)
        if counted and not (name in earlier and earlier.read(name).equals(own.read(name))):
            raise DoesNotFitError(f"{name} are other ones, or are numbered otherwise, in the data as it is now")


def refuse_held_out_knowledge(warm: WarmStart, earlier: GraphStore, store: GraphStore) -> None:
    """Refuse weights that learnt from what is held out now, or were chosen by what is tested now.

    History that is loaded later, or other data under the same recipe's name, moves rows between splits. Rows that chose
    weights then may do so now. Raises DoesNotFitError.
    """
    array = store.manifest.split_rows.array
    splits = {split: np.asarray(store[array(split)], np.int64) for split in ("train", "valid", "test")}
    own_keys = {split: _row_keys(store, rows, store.get(f"{split}_relation")) for split, rows in splits.items()}
    then = {split: np.asarray(earlier[array(split)], np.int64) for split in ("train", "valid")}
    before = np.unique(np.concatenate([rows.reshape(-1) for rows in then.values()]))
    here = np.full(earlier.manifest.num_nodes, -1, np.int64)
    now = np.unique(np.concatenate([rows.reshape(-1) for rows in splits.values()]))
    places, earlier_places = same_nodes(warm, earlier, store, before, now)
    here[before[earlier_places]] = now[places]
    relations = same_relations(warm) if store.manifest.split_rows.are_triples else None
    for split, verb, held in (("train", "learnt from", ("valid", "test")), ("valid", "was chosen by", ("test",))):
        rows = here[then[split]]
        known_rows = (rows >= 0).reshape(len(rows), -1).all(1)
        relation = None if relations is None else relations[np.asarray(earlier[f"{split}_relation"])]
        if relation is not None:
            known_rows &= relation >= 0
            relation = relation[known_rows]
        seen = _row_keys(store, rows[known_rows], relation)
        for name in held:
            # In OGB's own splits a pair may be in train and in test at once.
            if count := int(np.isin(np.setdiff1d(own_keys[name], own_keys["train"]), seen).sum()):
                what = {"link": "edges", "triple": "triples"}.get(store.manifest.task, "nodes")
                raise DoesNotFitError(f"{count:,} {what} that it {verb} are in the {name} split now")


def _row_keys(store: GraphStore, rows: Array, relations: Array | None) -> Array:
    """Return a number for each node (n,) or pair of nodes (n, 2), one for both directions if the graph is symmetric.

    `relations`: of triples, (n,).
    """
    if rows.ndim == 1:
        return rows
    if store.manifest.symmetric and relations is None:
        rows = np.sort(rows, axis=1)
    keys: Array = rows[:, 0] * store.manifest.num_nodes + rows[:, 1]
    return keys if relations is None else keys * store.manifest.num_relations + np.asarray(relations, np.int64)


def same_relations(warm: WarmStart) -> Array:
    """Return which relation of the present data each of the earlier one is, by its name: int64 (R,), -1 for none."""
    then, now = (relation_names(DatasetStore.open(folder)) for folder in (warm.dataset, warm.own_dataset))
    numbers = compute.index_in(then.cast(pa.string()), value_set=now.cast(pa.string()))
    return np.asarray(numbers.fill_null(-1), np.int64)


def same_nodes(
    warm: WarmStart, earlier: GraphStore, store: GraphStore, before: Array, now: Array
) -> tuple[Array, Array]:
    """Return which of the nodes `now`, of the present graph, are among `before`, of the earlier one, and where there.

    Both are int64 (n,), distinct. Nodes are known by their ids in the data set, or, where that was ingested anew, by
    the users' own.
    """
    if warm.dataset == warm.own_dataset:
        then, ids = np.asarray(earlier["node_ids"])[before], np.asarray(store["node_ids"])[now]
        order = np.argsort(then)
        place = np.minimum(np.searchsorted(then, ids, sorter=order), len(then) - 1)
        rows = np.flatnonzero(then[order[place]] == ids)
        return rows, order[place[rows]]
    names = IdMap(earlier, DatasetStore.open(warm.dataset)).lookup(before)
    names_now = IdMap(store, DatasetStore.open(warm.own_dataset)).lookup(now)
    if names.type != names_now.type:  # numbers that have become texts
        names, names_now = names.cast(pa.string()), names_now.cast(pa.string())
    places = compute.index_in(names_now, value_set=names)
    rows = np.flatnonzero(np.asarray(places.is_valid()))
    return rows, np.asarray(places.drop_null()).astype(np.int64)


def same_of_all(warm: WarmStart, earlier: GraphStore, store: GraphStore) -> tuple[Array, Array]:
    """Do `same_nodes` for all nodes of both graphs."""
    others, nodes = (np.arange(graph.manifest.num_nodes) for graph in (earlier, store))
    return same_nodes(warm, earlier, store, others, nodes)


def earlier_graph(warm: WarmStart) -> GraphStore:
    """Open the graph that was trained on. Raises DoesNotFitError."""
    if warm.graph is None:
        raise DoesNotFitError("the graph that it was trained on is gone, and nothing tells which rows it learnt from")
    return GraphStore.open(warm.graph)


@dataclass(frozen=True)
class EarlierRows:
    """Rows, and whose they are now."""

    entities: Tensor
    """float32 (N, dim), of the earlier graph; in a file."""
    place: NDArray[np.int64]
    """For each entity of the present graph its row there, (n,); -1: it was not there."""
    relations: Tensor
    """float32 (R, width), with those of ways back behind the others."""
    relation_place: NDArray[np.int64]
    """For each of these rows its row in the present table; -1: the relation is no longer there."""

    def fill(self, nodes: Array, rows: NDArray[np.float32]) -> None:
        """Replace the rows (m, dim) of entities (m,) that were there."""
        place = self.place[nodes]
        places = np.flatnonzero(place >= 0)
        rows[places] = self.entities[torch.from_numpy(place[places])].numpy()


def earlier_rows(warm: WarmStart, store: GraphStore, options: Any) -> EarlierRows:
    """Open the rows of an earlier training; `options`: of the present model.

    Raises DoesNotFitError: they are of another width, or learnt from what is held out now.
    """
    try:
        state = checkpoint.load(warm.checkpoint, mapped=True)["model"]
    except IntegrityError as error:
        raise DoesNotFitError(str(error)) from error
    (name,) = (name for name in state if name.startswith("encoder."))
    entities, relations = state[name], state["relations"]
    before = earlier_graph(warm)
    expected = options.relation_rows(before.manifest.num_relations), options.relation_width
    if entities.shape[1] != options.dim or tuple(relations.shape) != expected:
        raise DoesNotFitError(
            f"rows of entities have {entities.shape[1]} numbers and those of relations {relations.shape[1]}, here "
            f"{options.dim} and {options.relation_width}"
        )
    refuse_held_out_knowledge(warm, before, store)
    rows, earlier_places = same_of_all(warm, before, store)
    place = np.full(store.manifest.num_nodes, -1, np.int64)
    place[rows] = earlier_places
    own = same_relations(warm)
    parts = [own]
    if options.inverse_relations:
        parts.append(np.where(own >= 0, own + store.manifest.num_relations, -1))
    return EarlierRows(entities, place, relations, np.concatenate(parts))
