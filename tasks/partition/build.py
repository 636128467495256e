"""What the partition stage does: assign nodes to parts, make parts contiguous, measure cut and balance."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs.errors import DataError
from configs.schema import Recipe
from tasks.partition.base import PartitionContext, even_blocks
from tasks.partition.configs import PartitionerConfig
from tasks.stage import Parent, StageContext
from tasks.storage.graph_store import ArrayWriter, GraphStore
from tasks.storage.manifests import GraphManifest

_MATRIX_MAX_PARTS = 256  # beyond, the matrix of edges between parts is no picture any more


def build(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> dict[str, Any]:
    """Write the reordered graph; return the manifest's own fields.

    `report["partition"]` holds `part_sizes`, `part_train_sizes`, `part_edges` (edges from part to part, for at most 256
    parts), and with several machines `machines` and `machine_cut`, the share of edges whose ends lie on two machines.

    Raises:
        DataError: more parts than nodes, or training nodes are to be balanced where there are none.
    """
    config = recipe.partition
    assert isinstance(config, PartitionerConfig)
    manifest: GraphManifest = parents["components"].manifest
    store = GraphStore(parents["components"].folder, manifest)
    writer = ArrayWriter(context.work)
    if manifest.split_rows.are_graphs and config.num_parts > 1:
        context.message(f"a set of graphs is batched graph by graph: partition.num_parts={config.num_parts} has no use")
    if manifest.split_rows.are_graphs or config.num_parts == 1:  # one part: every array gets a second name
        writer.link_all(store)
        return {
            **manifest.own_fields(GraphManifest),
            "arrays": writer.entries,
            "partitioner": "none",
            "num_parts": 1,
            "part_offsets": (0, manifest.num_nodes),
            "edge_cut": 0.0,
            "node_balance": 1.0,
            "train_balance": 1.0,
            "rows": manifest.num_edges,
        }
    if config.num_parts > manifest.num_nodes:
        raise DataError(
            f"the graph has {manifest.num_nodes:,} nodes, which cannot be split into {config.num_parts:,} parts; "
            f"set partition.num_parts to at most {max(1, manifest.num_nodes):,}"
        )
    part, name = _assign(context, store, config)
    return _write_parts(context, store, writer, config, part) | {"partitioner": name}


def _assign(context: StageContext, store: GraphStore, config: PartitionerConfig) -> tuple[NDArray[np.int32], str]:
    """Return the part of each node and the name of the partitioner that did the work."""
    from tasks.partition.kernels.graphs import undirected
    from tasks.partition.machines import partition_by_machine
    from tasks.partition.simple import chosen_name

    of_nodes = config.balance_train and not store.manifest.split_rows.are_edges
    train_idx = store.get("train_idx") if of_nodes else None
    if config.balance_train and (train_idx is None or not len(train_idx)):
        raise DataError(
            f"partition.balance_train needs training nodes, and this {store.manifest.task} task has none; "
            "set partition.balance_train=false"
        )
    scratch = context.work / "scratch"
    scratch.mkdir()
    try:
        csr = undirected(store, scratch)
        partition_context = PartitionContext(train_idx, scratch, context.message, context.warn)
        if csr.num_edges == 0:
            context.message("the graph has no edges: nodes are dealt out in blocks")
            return even_blocks(csr.num_nodes, config.num_parts, train_idx), "none"
        part = partition_by_machine(config, csr, partition_context)
    finally:
        shutil.rmtree(scratch)
    assert part.dtype == np.int32
    assert part.shape == (csr.num_nodes,)
    assert 0 <= part.min() <= part.max() < config.num_parts
    return part, chosen_name(csr.num_edges) if config.name == "auto" else config.name


def _write_parts(
    context: StageContext, store: GraphStore, writer: ArrayWriter, config: PartitionerConfig, part: NDArray[np.int32]
) -> dict[str, Any]:
    """Reorder and measure."""
    from tasks.partition.kernels.graphs import count_cut, cut_matrix, order_by_part, reorder

    manifest, num_parts = store.manifest, config.num_parts
    old_indptr, old_indices = np.asarray(store["csc_indptr"]), np.asarray(store["csc_indices"])
    order = order_by_part(part, num_parts, old_indices.dtype)
    reorder(store, writer, order)
    report: dict[str, Any] = {"part_sizes": np.diff(order.part_offsets).tolist()}
    if num_parts <= _MATRIX_MAX_PARTS:
        matrix = cut_matrix(old_indptr, old_indices, part, num_parts)
        report["part_edges"] = matrix.tolist()
        cut = int(matrix.sum() - np.trace(matrix))
    else:
        cut = count_cut(old_indptr, old_indices, part)
    if config.machines > 1:
        between = count_cut(old_indptr, old_indices, part // (num_parts // config.machines))
        report["machines"] = config.machines
        report["machine_cut"] = between / max(1, manifest.num_edges)
    train_idx = store.get("train_idx") if manifest.split_rows.are_nodes else None
    sizes = np.bincount(part, minlength=num_parts)
    train_sizes = np.bincount(part[[] if train_idx is None else train_idx], minlength=num_parts)
    report["part_train_sizes"] = train_sizes.tolist()
    for what, counts in (("nodes", sizes), ("training nodes", train_sizes))[: 1 + config.balance_train]:
        if counts.max() > np.ceil((1 + config.imbalance) * counts.mean()) + 1:  # one node over is rounding
            context.warn(
                f"the largest part has {_balance(counts):.3f} times the mean number of {what}, asked was "
                f"{1 + config.imbalance:g}; partition.name=coarsened keeps closer to it, or allow more "
                "(partition.imbalance)"
            )
    if not sizes.all():
        context.warn(f"{int((sizes == 0).sum())} of {len(sizes)} parts are empty: take fewer (partition.num_parts)")
    return {
        **manifest.own_fields(GraphManifest),
        "arrays": writer.entries,
        "num_parts": num_parts,
        "part_offsets": tuple(order.part_offsets.tolist()),
        "edge_cut": cut / max(1, manifest.num_edges),
        "node_balance": _balance(sizes),
        "train_balance": _balance(train_sizes),
        "report": {**manifest.report, "partition": report},
        "rows": manifest.num_edges,
    }


def _balance(sizes: NDArray[np.int64]) -> float:
    """Return the largest part over the mean part; 1.0 where there is nothing to balance."""
    return float(sizes.max() / sizes.mean()) if sizes.any() else 1.0
