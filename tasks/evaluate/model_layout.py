"""The layout of what a model has learnt: a point for each vector, and beside it what the model says of the row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.layout_options import LayoutOptions
from configs.registry import MODELS
from models.kernels.threads import num_threads
from models.layout.base import LayoutModel
from tasks.arrays import Array
from tasks.inference.opened import Opened
from tasks.inference.predictor import evaluating
from tasks.kinds.base import Kind
from tasks.kinds.of import kind_of
from tasks.kinds.points import LAYOUT_FILE, renamed, write_points
from tasks.supervise import report_progress

if TYPE_CHECKING:
    from models.layout.configs import LayoutConfig


def layout_of_model(opened: Opened, options: LayoutOptions, work: Path, seed: int) -> tuple[str, int, dict[str, float]]:
    """Lay out a model's vectors, and write the points; return the file's name, their number, and how good they lie."""
    from tasks.layout.quality.measure import measure_layout

    kind = kind_of(opened.store.manifest)
    if isinstance(opened.model, LayoutModel):  # it is its own, and its evaluation has said how good it lies
        points, values = np.asarray(opened.model.table), dict[str, float]()
        write_points(work / LAYOUT_FILE, points, kind.point_columns(opened, np.arange(len(points))))
        return LAYOUT_FILE, len(points), values
    samples = bool(opened.model.facts.fanouts)  # which have vectors of what they predict only
    items = np.sort(opened.ids.nodes_of_type(opened.store.manifest.target_type)) if samples else kind.points(opened)
    with evaluating(opened.model):
        vectors = np.concatenate([some for _, some in kind.vectors(opened, items)])
        columns = _columns(kind, opened, items)
    points = layout_of_vectors(vectors, options, seed)
    write_points(work / LAYOUT_FILE, points, columns)
    values, _ = measure_layout(points, vectors, options.neighbors.metric, seed=seed)
    return LAYOUT_FILE, len(points), values


def layout_of_vectors(vectors: Array, options: LayoutOptions, seed: int) -> Array:
    """Return the coordinates of vectors, float32 (n, dim)."""
    from tasks.layout.edge_list import EdgeList
    from tasks.layout.neighbors.graph import neighbor_graph
    from tasks.layout.start import pca_start
    from tasks.train.layout.engine import lay_out

    model: LayoutConfig = MODELS.config({"name": options.method, "dim": options.dim})  # type: ignore[assignment]
    neighbors = neighbor_graph(vectors, options.neighbors.settled(model.usual_weights), seed, num_threads())
    edges = EdgeList(neighbors.indptr, neighbors.indices, neighbors.weight)
    start = pca_start(vectors, options.dim, seed)
    return lay_out(
        edges, model, start, seed=seed, say=lambda done, total: report_progress(done, total, "steps", "layout")
    )


def _columns(kind: Kind, opened: Opened, items: Array) -> dict[str, pa.Array]:
    """Return what is known of points, what the model says of them, and whether it is right, or how far off."""
    columns = kind.point_columns(opened, items)
    told = kind.said_of_points(opened, items)
    if told is None:
        return columns
    label_type, said = told
    columns.pop("label", None)  # what was judged says it
    label, right = said["label"], dict[str, pa.Array]()
    if label_type.is_number and not pa.types.is_fixed_size_list(label.type):
        right["error"] = compute.subtract(said["prediction"], label)
    elif not pa.types.is_fixed_size_list(label.type):
        right["result"] = compute.if_else(compute.equal(said["prediction"], label), "right", "wrong")
    for name in ("label", "prediction"):  # classes are names, also where these are numbers
        if not (label_type.is_number or pa.types.is_fixed_size_list(said[name].type)):
            said[name] = said[name].cast(pa.string())
    return {**renamed(columns, (*said, *right)), **said, **right}
