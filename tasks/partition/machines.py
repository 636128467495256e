"""Parts of several machines: split the nodes among the machines first, then each machine's among its parts.

Edges between machines cost more than edges between the parts of one machine, so their cut is made small first. Parts of
one machine are numbered one after the other, so that in the reordered graph a machine is one range of nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numba import njit
from numpy.typing import NDArray

from configs.registry import PARTITIONERS
from tasks.arrays import Array
from tasks.partition.base import Csr, PartitionContext, Partitioner, even_blocks
from tasks.partition.configs import PartitionerConfig
from tasks.storage.graph_store import create_array


def partition_by_machine(config: PartitionerConfig, csr: Csr, context: PartitionContext) -> NDArray[np.int32]:
    """Return the part of each node; machine m has the parts m * k to (m + 1) * k - 1, k = num_parts / machines.

    Both steps are done by the recipe's partitioner. The first may use the square root of the allowed imbalance, the
    second what is left of it, so that parts keep the imbalance that was asked for.

    Memory: the partitioner's, and 4 bytes a node (8 above 2^31 nodes); a machine's edges lie in a scratch file.

    Returns:
        int32 (num_nodes,), values in 0..num_parts - 1.
    """
    partitioner: Partitioner = PARTITIONERS.create(config)
    if config.machines == 1 or partitioner.ignores_edges:  # such parts are alike: any k of them are a machine
        return partitioner.partition(csr, config.num_parts, context)
    first = (1 + config.imbalance) ** 0.5 - 1
    machine = _split(config, csr, config.machines, first, context)
    per_machine = config.num_parts // config.machines
    if per_machine == 1:
        return machine
    part = machine * np.int32(per_machine)
    for m in range(config.machines):
        found = _subgraph(csr, machine, m, context)
        if found.csr.num_nodes:
            part[found.nodes] += _split_machine(config, found, csr.num_nodes, first)
        found.file.unlink()
        context.message(f"machine {m}: {found.csr.num_nodes:,} nodes, {found.csr.num_edges:,} edge ends inside")
    return part


@dataclass(frozen=True)
class _Subgraph:
    """The nodes of one machine and the edges between them, under ids of their own."""

    nodes: Array
    """Their ids in the whole graph, ascending, id (n,)."""
    csr: Csr
    context: PartitionContext
    """What the partitioner may use, training nodes under the new ids."""
    file: Path
    """Scratch file of the edges."""


def _split(
    config: PartitionerConfig, csr: Csr, num_parts: int, imbalance: float, context: PartitionContext
) -> NDArray[np.int32]:
    changed = {"num_parts": num_parts, "machines": 1, "imbalance": min(1.0, imbalance)}
    partitioner: Partitioner = PARTITIONERS.create(config.model_copy(update=changed))
    return partitioner.partition(csr, num_parts, context)


def _split_machine(config: PartitionerConfig, found: _Subgraph, total: int, least: float) -> NDArray[np.int32]:
    """Return the part of each of a machine's nodes, counted from its first part."""
    num_parts, num_nodes = config.num_parts // config.machines, found.csr.num_nodes
    if found.csr.num_edges == 0 or num_nodes <= num_parts:
        return even_blocks(num_nodes, num_parts, found.context.train_idx)
    largest = (1 + config.imbalance) * total / config.num_parts
    imbalance = max(least, largest * num_parts / num_nodes - 1)
    return _split(config, found.csr, num_parts, imbalance, found.context)


def _subgraph(csr: Csr, machine: NDArray[np.int32], m: int, context: PartitionContext) -> _Subgraph:
    """Return the graph that is induced by the nodes of machine m."""
    nodes = np.flatnonzero(machine == m).astype(csr.indices.dtype)
    new_id = np.full(csr.num_nodes, -1, csr.indices.dtype)
    new_id[nodes] = np.arange(len(nodes), dtype=nodes.dtype)
    indptr = np.zeros(len(nodes) + 1, np.int64)
    _inner_rows(csr.indptr, csr.indices, nodes, new_id, indptr, np.empty(0, nodes.dtype))
    np.cumsum(indptr, out=indptr)
    file = context.scratch / f"machine-{m}.npy"
    indices = np.asarray(create_array(file, (int(indptr[-1]),), nodes.dtype))
    if len(indices):
        _inner_rows(csr.indptr, csr.indices, nodes, new_id, indptr, indices)
    train_idx = None
    if context.train_idx is not None:
        train_idx = new_id[context.train_idx]
        train_idx = train_idx[train_idx >= 0]
    return _Subgraph(nodes, Csr(indptr, indices), replace(context, train_idx=train_idx), file)


@njit(cache=True, nogil=True)
def _inner_rows(
    indptr: Array, indices: Array, nodes: Array, new_id: Array, inner_indptr: Array, inner_indices: Array
) -> None:
    """Write the neighbours of `nodes` that have a new id, in order, from inner_indices[inner_indptr[i]] on.

    Where `inner_indices` is empty, their number is written to inner_indptr[i + 1] instead.
    """
    for i in range(len(nodes)):
        v, count = nodes[i], 0
        for e in range(indptr[v], indptr[v + 1]):
            u = new_id[indices[e]]
            if u >= 0:
                if len(inner_indices) > 0:
                    inner_indices[inner_indptr[i] + count] = u
                count += 1
        if len(inner_indices) == 0:
            inner_indptr[i + 1] = count
