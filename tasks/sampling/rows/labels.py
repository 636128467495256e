"""Labels in batches: as the losses want them, and as models may read those of other nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from models.block import Inputs
from tasks.arrays import Array, blocks
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.storage.graph_store import GraphStore
from tasks.storage.manifests import GraphManifest

_HIDE = 0x1ABE1  # purpose of a key: whose labels are hidden


def targets(manifest: GraphManifest, labels: Array) -> Tensor:
    """Return labels as the losses want them: int64 (n,) for multiclass, else float32 (n, T) with NaN for none."""
    if manifest.label_type.one_of_many:
        return torch.from_numpy(labels.reshape(len(labels)).astype(np.int64))
    labels = labels.reshape(len(labels), math.prod(labels.shape[1:]))  # there may be no row, so -1 would not do
    values = labels.astype(np.float32)
    if np.issubdtype(labels.dtype, np.integer):
        values[labels < 0] = np.nan
    return torch.from_numpy(values)


def training_labels(store: GraphStore) -> Array:
    """Return the training nodes' labels, int64 (N,) or float32 (N, T); for all others no label, -1 or NaN.

    Of a graph in parts: those of this machine's nodes.
    """
    nodes, label = store.training_rows(), store["label"]
    shown: Array = np.full(label.shape, -1 if label.dtype.kind == "i" else np.nan, label.dtype)
    shown[nodes] = label[nodes]
    return shown


def hide_labels(inputs: Inputs, rows: Array, key: int) -> tuple[Array, Inputs]:
    """Choose a random half of the training nodes for the loss, and hide their labels from the model.

    The other half's labels are read (https://arxiv.org/abs/2103.13355, section 3.1).

    Args:
        inputs: of nodes; without labels all training nodes are chosen.
        rows: int64 (n,): training nodes among them.
        key: of the draw.

    Returns:
        The rows chosen, ascending, and the inputs without their labels.
    """
    if inputs.label is None or not len(rows):
        return rows, inputs
    order = np.random.Generator(np.random.Philox(key=derive_key(key, _HIDE))).permutation(len(rows))
    chosen = np.sort(rows[order[: (len(rows) + 1) // 2]])
    return chosen, without_labels(inputs, torch.from_numpy(chosen))


def without_labels(inputs: Inputs, rows: Tensor | slice) -> Inputs:
    """Return the inputs with the labels of some nodes hidden; themselves where there are no labels."""
    if inputs.label is None:
        return inputs
    label = inputs.label.clone()
    label[rows] = torch.nan if label.is_floating_point() else -1
    return replace(inputs, label=label)


_CHUNK_ROWS = 1 << 18
_CONSTANT = 1e-7
"""A deviation below this share of the mean is rounding: the label is constant."""


def label_scale(labels: Array, rows: Array, add_up: Callable[[Array], Array] | None = None) -> tuple[Array, Array]:
    """Return mean and standard deviation of the labels of some rows, float64 (T,) each, by column.

    `labels`, float (N, T), may be a memory map; NaN is no label. A constant label has the scale 1, one that no row has
    the mean 0 besides. `add_up`: see `column_moments`.
    """
    mean, deviation = column_moments(
        lambda: (labels[rows[part]] for part in blocks(max(1, len(rows)), _CHUNK_ROWS)), add_up
    )
    return mean, np.where(deviation > _CONSTANT * np.abs(mean), deviation, 1.0)


def column_moments(
    parts: Callable[[], Iterable[Array]], add_up: Callable[[Array], Array] | None = None
) -> tuple[Array, Array]:
    """Return mean and standard deviation of each column, float64 (D,), 0 where it has no number.

    `parts` returns the rows (n, D) in pieces, anew for each of two passes; NaN does not count. `add_up` adds sums to
    those of other ranks that hold further rows.
    """
    over_ranks = add_up or np.asarray
    count, total = np.zeros((), np.float64), np.zeros((), np.float64)
    for part in parts():
        labelled = ~np.isnan(part)
        count = count + labelled.sum(0)
        total = total + np.where(labelled, part, 0).sum(0, dtype=np.float64)
    count = np.maximum(over_ranks(count), 1)
    mean = over_ranks(total) / count
    squares = sum(np.nansum(np.square(part - mean), axis=0) for part in parts())
    return mean, np.sqrt(over_ranks(np.asarray(squares)) / count)
