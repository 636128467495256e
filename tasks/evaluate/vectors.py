"""What a report shows of nodes' vectors: what they are worth by share of labels, their lengths, a picture of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.vectors.base import VectorModel
from models.vectors.factorization import left_factor
from tasks.arrays import Array, sample_rows
from tasks.evaluators.label_shares import f1_by_share
from tasks.sampling.degrees import degrees
from tasks.sampling.rows.labels import targets
from tasks.storage.graph_store import GraphStore
from tasks.storage.manifests import SPLITS

SHARES: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_SPLITS_A_SHARE = 5
_MOST_CLASSES = 200
_POINTS, _CLASSES_SHOWN = 3000, 8
_EQUAL = 1e-3
"""Lengths that differ by less are all the same."""


def describe_vectors(
    model: VectorModel, store: GraphStore, names: list[str] | None, *, shares: Sequence[float], most_labelled: int
) -> dict[str, Any]:
    """Return `label_shares` (node tasks of classes), `lengths` and `map`, as small plain values; `notes` if any.

    `shares`, between 0 and 1 each: of labels that are known where F1 is measured, on at most `most_labelled` nodes.
    """
    described: dict[str, Any] = {}
    lengths = model.lengths.numpy()
    if np.ptp(lengths) > _EQUAL * lengths.max():
        described["lengths"] = _lengths_by_degree(lengths, store)
    nodes, members = _classes(store, model.facts.out_dim, most_labelled)
    if members is not None:
        of_length_1 = torch.nn.functional.normalize(_rows(model, nodes))
        scores = f1_by_share(of_length_1, members, shares, splits=_SPLITS_A_SHARE)
        if scores:
            described["label_shares"] = {"rows": len(nodes), "splits": _SPLITS_A_SHARE, "shares": scores}
        if left_out := sorted(set(shares) - {one["share"] for one in scores}):
            described["notes"] = [
                f"F1 by share of labels leaves out {', '.join(f'{share:g}' for share in left_out)}: of {len(nodes):,} "
                f"labelled nodes none is left to predict; the largest share that works is {1 - 1 / len(nodes):.4g}"
            ]
    described["map"] = _vector_map(model, store, names)
    return described


def _classes(store: GraphStore, num_classes: int, most: int) -> tuple[Array, Tensor | None]:
    """Return labelled nodes, at most `most`, and bool (n, C); None where nodes have no classes, or very many."""
    manifest = store.manifest
    if "label" not in store or not manifest.label_type.has_classes or num_classes > _MOST_CLASSES:
        return np.empty(0, np.int64), None
    indices = [store.get(f"{split}_idx") for split in SPLITS]
    nodes = np.unique(np.concatenate([np.asarray(index, np.int64) for index in indices if index is not None]))
    nodes = sample_rows(nodes, most)
    label = targets(manifest, np.asarray(store["label"][nodes]))
    if label.dim() == 1:
        labelled = label >= 0
        members = torch.nn.functional.one_hot(label.clamp(min=0), num_classes).bool()
    else:
        members = torch.nan_to_num(label) > 0.5
        labelled = members.any(1)
    return nodes[labelled.numpy()], members[labelled] if labelled.sum() > 10 else None


def _lengths_by_degree(lengths: Array, store: GraphStore) -> dict[str, Any]:
    """Return, for degrees in powers of two, nodes and the quartiles of their vectors' lengths."""
    place = np.ceil(np.log2(degrees(store) + 1)).astype(np.int64)  # 0, 1, 2-3, 4-7, ...
    rows = []
    for power in np.unique(place):
        here = lengths[place == power]
        quartiles = np.quantile(here, [0.25, 0.5, 0.75])
        rows.append({"degree": int(2**power // 2), "nodes": len(here), "quartiles": quartiles.tolist()})
    return {"rows": rows}


def _vector_map(model: VectorModel, store: GraphStore, names: list[str] | None) -> dict[str, Any]:
    """Return two coordinates of some nodes, by the two directions in which vectors differ most, and their classes.

    Of several labels a node has the one that most nodes have. Classes beyond the most frequent ones, and nodes without
    one, are -1.
    """
    manifest = store.manifest
    nodes = sample_rows(np.arange(manifest.num_nodes), _POINTS)
    rows = _rows(model, nodes)
    points = left_factor(rows - rows.mean(0), 2) if rows.shape[1] > 1 else torch.cat([rows, rows * 0], 1)
    x, y = ([float(f"{value:.4g}") for value in points[:, axis].tolist()] for axis in (0, 1))
    shown: dict[str, Any] = {"x": x, "y": y, "nodes": manifest.num_nodes}
    kind = manifest.label_type
    if "label" in store and (kind.one_of_many or (kind.is_yes_or_no and not kind.one_column)):
        label = np.asarray(store["label"][nodes])
        label = label.reshape(-1) if kind.one_column else _most_frequent_of_each(label)
        classes, counts = np.unique(label[label >= 0], return_counts=True)
        frequent = classes[np.argsort(-counts, kind="stable")[:_CLASSES_SHOWN]]
        place = {int(c): i for i, c in enumerate(frequent)}
        shown["class"] = [place.get(int(c), -1) for c in label]
        shown["classes"] = [names[c] if names is not None and c < len(names) else str(c) for c in frequent]
    return shown


def _most_frequent_of_each(label: Array) -> Array:
    """Return for each row of (n, T), 0, 1 or NaN, the most frequent column of those that it is in; -1: of none."""
    member = label == 1
    counts = member.sum(0)
    return np.where(member.any(1), np.where(member, counts, -1).argmax(1), -1)


def _rows(model: VectorModel, nodes: Array) -> Tensor:
    return model.table[torch.from_numpy(nodes)].float()
