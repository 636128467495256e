"""The layout of what a model has learnt: a point for each vector, and beside it what the model says of the row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from configs.layout_options import LayoutOptions
from configs.registry import MODELS
from models.kernels.threads import num_threads
from models.layout.base import LayoutModel
from tasks.arrays import Array
from tasks.evaluate.layouts.columns import point_columns, split_column
from tasks.evaluate.layouts.points_file import LAYOUT_FILE, renamed, write_points
from tasks.evaluate.predictions import judged
from tasks.inference.opened import Opened
from tasks.storage.graph_store import slices
from tasks.storage.heads import head_views

if TYPE_CHECKING:
    from models.layout.configs import LayoutConfig

_ROWS = 1 << 16
Say = Callable[[int, int], None]


@dataclass(frozen=True)
class Rows:
    """What a model has vectors of."""

    items: Array
    """Nodes, or graphs, ascending: int64 (n,)."""
    vectors: Array
    """float32 (n, D)."""
    scores: Array | None
    """float32 (n, C); None: of no use for the task."""


def layout_of_model(
    opened: Opened, options: LayoutOptions, work: Path, seed: int, say: Say
) -> tuple[str, int, dict[str, float]]:
    """Lay out a model's vectors, and write the points; return the file's name, their number, and how good they lie."""
    from tasks.layout.quality.measure import measure_layout

    if isinstance(opened.model, LayoutModel):  # it is its own
        return _own_points(opened, work)
    rows = _rows(opened)
    points = layout_of_vectors(rows.vectors, options, seed, say)
    write_points(work / LAYOUT_FILE, points, _columns(opened, rows))
    values, _ = measure_layout(points, rows.vectors, options.neighbors.metric, seed=seed)
    return LAYOUT_FILE, len(points), values


def _own_points(opened: Opened, work: Path) -> tuple[str, int, dict[str, float]]:
    """Write a layout's own points; its evaluation has said how good they lie."""
    points = np.asarray(opened.model.table)
    columns = point_columns(opened.store, opened.dataset, opened.ids, np.arange(len(points)))
    write_points(work / LAYOUT_FILE, points, columns)
    return LAYOUT_FILE, len(points), {}


def layout_of_vectors(vectors: Array, options: LayoutOptions, seed: int, say: Say) -> Array:
    """Return the coordinates of vectors, float32 (n, dim)."""
    from tasks.layout.edge_list import EdgeList
    from tasks.layout.neighbors.graph import neighbor_graph
    from tasks.layout.start import pca_start
    from tasks.train.layout.in_memory import lay_out

    model: LayoutConfig = MODELS.config({"name": options.method, "dim": options.dim})  # type: ignore[assignment]
    found = neighbor_graph(vectors, options.neighbors.settled(model.usual_weights), seed, num_threads())
    edges = EdgeList(found.indptr, found.indices, found.weight)
    return lay_out(edges, model, pca_start(vectors, options.dim, seed), seed=seed, say=say)


def _rows(opened: Opened) -> Rows:
    """Return the vectors of the last layer: of graphs, of rows that are predicted, or of all nodes."""
    import torch

    from tasks.inference.predictor import evaluating

    model, predictor, manifest = opened.model, opened.predictor, opened.store.manifest
    with torch.no_grad(), evaluating(model):
        if manifest.task == "graph":
            items = np.arange(manifest.num_graphs)
            parts = [predictor.pooled(model, batch) for _, batch in predictor.graph_batches(model, items)]
            return Rows(
                items, np.concatenate([part.cpu().numpy() for part in parts]), predictor.graph_scores(model, items)
            )
        items = _nodes(opened)
        samples = bool(model.facts.fanouts)
        found = predictor.node_vectors(model, items if samples else None)
        vectors = np.empty((len(items), int(model.head_dim)), np.float32)
        scores = _no_scores(opened, len(items))
        for part in slices(len(items), _ROWS):
            some = predictor.tensor(found[part] if samples else found[items[part]])
            vectors[part] = predictor.by_rows(model.finish, some).cpu().numpy()
            if scores is not None:
                scores[part] = predictor.by_rows(model.score, some).cpu().numpy()
    return Rows(items, vectors, scores)


def _nodes(opened: Opened) -> Array:
    manifest = opened.store.manifest
    if opened.model.facts.fanouts or manifest.task == "node":
        return np.sort(opened.ids.nodes_of_type(manifest.target_type))
    return np.arange(manifest.num_nodes)


def _no_scores(opened: Opened, count: int) -> Array | None:
    manifest = opened.store.manifest
    if manifest.task != "node" or manifest.ranking is not None or head_views(manifest):
        return None
    return np.empty((count, opened.model.facts.out_dim), np.float32)


def _columns(opened: Opened, rows: Rows) -> dict[str, pa.Array]:
    store, manifest = opened.store, opened.store.manifest
    if manifest.task == "graph":
        found = opened.ids.graph_columns(rows.items)
        found = {"id": found.pop("graph_id"), **found}
        label: Array | None = np.asarray(store["graph_label"])[rows.items]
        found["split"] = split_column(store, rows.items)
    else:
        found = point_columns(store, opened.dataset, opened.ids, rows.items)
        label = None if rows.scores is None else np.asarray(store["label"])[rows.items]
    if rows.scores is None or label is None or rows.scores.shape[1] > 1 < np.ndim(label) < 3:
        return found
    names = None if opened.names is None else np.array(opened.names, object)
    said = judged(manifest.task_type, label, rows.scores, names)
    right = _right(said, manifest.task_type)
    if manifest.task_type != "regression":  # classes are names, also where these are numbers
        said = {name: column if name == "score" else _as_texts(column) for name, column in said.items()}
    found.pop("label", None)  # what was judged says it
    return {**renamed(found, (*said, *right)), **said, **right}


def _as_texts(column: pa.Array) -> pa.Array:
    return column if pa.types.is_fixed_size_list(column.type) else column.cast(pa.string())


def _right(said: dict[str, pa.Array], task_type: str) -> dict[str, pa.Array]:
    """Return whether predictions are right, or how far off they are."""
    import pyarrow.compute as compute

    if pa.types.is_fixed_size_list(said["label"].type):
        return {}
    if task_type == "regression":
        return {"error": compute.subtract(said["prediction"], said["label"])}
    right = compute.equal(said["prediction"], said["label"])
    return {"result": compute.if_else(right, "right", "wrong")}
