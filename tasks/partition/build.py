"""What the partition stage does: assign nodes to parts, make parts contiguous, list halos, measure cut and balance."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs.errors import DataError
from configs.schema import Recipe
from tasks.arrays import Array
from tasks.partition.base import Csr, PartitionContext, check_parts, even_blocks
from tasks.partition.configs import PartitionerConfig
from tasks.stage import Parent, StageContext
from tasks.storage.graph_store import ArrayWriter, GraphStore
from tasks.storage.manifests import GraphManifest

_MATRIX_MAX_PARTS = 256  # beyond, the matrix of edges between parts is no picture any more


def build(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> dict[str, Any]:
    """Write the reordered graph and its halos; return the manifest's own fields.

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
    if manifest.split_rows.are_graphs or config.num_parts == 1:
        return _pass_through(store, writer, config)
    check_parts(manifest.num_nodes, config.num_parts)
    part, name = _assign(context, store, config)
    return _write_parts(context, store, writer, config, part) | {"partitioner": name}


def _pass_through(store: GraphStore, writer: ArrayWriter, config: PartitionerConfig) -> dict[str, Any]:
    """One part: every array gets a second name."""
    manifest = store.manifest
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


def _assign(context: StageContext, store: GraphStore, config: PartitionerConfig) -> tuple[NDArray[np.int32], str]:
    """Return the part of each node and the name of the partitioner that found it."""
    from tasks.partition.kernels.undirected import undirected
    from tasks.partition.machines import partition_by_machine

    train_idx = _training_nodes(store, config)
    scratch = context.work / "scratch"
    scratch.mkdir()
    try:
        csr = undirected(store, scratch)
        partition_context = PartitionContext(train_idx, scratch, context.message, context.warn, context.map_shards)
        if csr.num_edges == 0:
            context.message("the graph has no edges: nodes are dealt out in blocks")
            return even_blocks(csr.num_nodes, config.num_parts, train_idx), "none"
        part = partition_by_machine(config, csr, partition_context)
    finally:
        shutil.rmtree(scratch)
    assert part.dtype == np.int32
    assert part.shape == (csr.num_nodes,)
    assert 0 <= part.min() <= part.max() < config.num_parts
    return part, resolved_name(config, csr)


def resolved_name(config: PartitionerConfig, csr: Csr) -> str:
    """Return the partitioner that does the work: `auto` stands for another one."""
    if config.name != "auto":
        return config.name
    from tasks.partition.auto import choose

    return choose(csr.num_nodes, csr.num_edges)[0]


def _training_nodes(store: GraphStore, config: PartitionerConfig) -> Array | None:
    if not config.balance_train:
        return None
    train_idx = store.get("train_idx")
    if train_idx is None or not len(train_idx):
        raise DataError(
            f"partition.balance_train needs training nodes, and this {store.manifest.task} task has none; "
            "set partition.balance_train=false"
        )
    return np.asarray(train_idx)


def _write_parts(
    context: StageContext, store: GraphStore, writer: ArrayWriter, config: PartitionerConfig, part: NDArray[np.int32]
) -> dict[str, Any]:
    """Reorder, write halos, measure."""
    from tasks.partition.kernels.quality import count_cut, cut_matrix, halos
    from tasks.partition.kernels.reorder import order_by_part, reorder

    manifest, num_parts = store.manifest, config.num_parts
    old_indptr, old_indices = np.asarray(store["csc_indptr"]), np.asarray(store["csc_indices"])
    order = order_by_part(part, num_parts, old_indices.dtype)
    reorder(store, writer, order)
    halo_sizes = []
    if config.halo_hops:
        indptr, indices = (np.asarray(writer.read(name)) for name in ("csc_indptr", "csc_indices"))
        for p, halo in enumerate(halos(indptr, indices, order.part_offsets, config.halo_hops)):
            writer.write(f"halo-{p}", halo)
            halo_sizes.append(len(halo))
            context.progress(p + 1, num_parts, "parts", "halo")
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
    sizes, train_sizes = _sizes(store, part, num_parts)
    report["part_train_sizes"] = train_sizes.tolist()
    _judge_balance(context, config, sizes, train_sizes)
    return {
        **manifest.own_fields(GraphManifest),
        "arrays": writer.entries,
        "num_parts": num_parts,
        "part_offsets": tuple(order.part_offsets.tolist()),
        "edge_cut": cut / max(1, manifest.num_edges),
        "node_balance": _balance(sizes),
        "train_balance": _balance(train_sizes),
        "halo_sizes": tuple(halo_sizes),
        "report": {**manifest.report, "partition": report},
        "rows": manifest.num_edges,
    }


def _sizes(store: GraphStore, part: NDArray[np.int32], num_parts: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return nodes and training nodes in each part."""
    sizes = np.bincount(part, minlength=num_parts)
    train_idx = store.get("train_idx") if store.manifest.split_rows.are_nodes else None
    if train_idx is None:
        return sizes, np.zeros(num_parts, np.int64)
    return sizes, np.bincount(part[train_idx], minlength=num_parts)


def _balance(sizes: NDArray[np.int64]) -> float:
    """Return the largest part over the mean part; 1.0 where there is nothing to balance."""
    return float(sizes.max() / sizes.mean()) if sizes.any() else 1.0


def _judge_balance(
    context: StageContext, config: PartitionerConfig, sizes: NDArray[np.int64], train_sizes: NDArray[np.int64]
) -> None:
    """Warn of parts above the allowed imbalance (one node over is rounding) and of empty ones."""
    wanted = [("nodes", sizes)] + ([("training nodes", train_sizes)] if config.balance_train else [])
    for what, counts in wanted:
        if counts.max() > np.ceil((1 + config.imbalance) * counts.mean()) + 1:
            context.warn(
                f"the largest part has {_balance(counts):.3f} times the mean number of {what}, asked was "
                f"{1 + config.imbalance:g}; partition.name=coarsened keeps closer to it, or allow more "
                "(partition.imbalance)"
            )
    if not sizes.all():
        context.warn(f"{int((sizes == 0).sum())} of {len(sizes)} parts are empty: take fewer (partition.num_parts)")
