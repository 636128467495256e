"""Parts of several machines: split the nodes among the machines first, then each machine's among its parts.

So the cut between machines is made small first, and in the reordered graph a machine is one range of nodes.
"""

from __future__ import annotations

from dataclasses import replace
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
        nodes = np.flatnonzero(machine == m).astype(csr.indices.dtype)
        file = context.scratch / f"machine-{m}.npy"
        inner, train_idx = _subgraph(csr, nodes, context.train_idx, file)
        if len(nodes) <= per_machine or inner.num_edges == 0:
            part[nodes] += even_blocks(len(nodes), per_machine, train_idx)
        else:
            largest_part = (1 + config.imbalance) * csr.num_nodes / config.num_parts
            imbalance = max(first, largest_part * per_machine / len(nodes) - 1)
            part[nodes] += _split(config, inner, per_machine, imbalance, replace(context, train_idx=train_idx))
        file.unlink()
        context.message(f"machine {m}: {inner.num_nodes:,} nodes, {inner.num_edges:,} edge ends inside")
    return part


def _split(
    config: PartitionerConfig, csr: Csr, num_parts: int, imbalance: float, context: PartitionContext
) -> NDArray[np.int32]:
    changed = {"num_parts": num_parts, "machines": 1, "imbalance": min(1.0, imbalance)}
    partitioner: Partitioner = PARTITIONERS.create(config.model_copy(update=changed))
    return partitioner.partition(csr, num_parts, context)


def _subgraph(csr: Csr, nodes: Array, train_idx: Array | None, file: Path) -> tuple[Csr, Array | None]:
    """Return the graph induced by some nodes, ascending, and those of them that train, both under ids of their own.

    Its edges lie in `file`.
    """
    new_id = np.full(csr.num_nodes, -1, csr.indices.dtype)
    new_id[nodes] = np.arange(len(nodes), dtype=nodes.dtype)
    indptr = np.zeros(len(nodes) + 1, np.int64)
    _inner_rows(csr.indptr, csr.indices, nodes, new_id, indptr, np.empty(0, nodes.dtype))
    np.cumsum(indptr, out=indptr)
    indices = np.asarray(create_array(file, (int(indptr[-1]),), nodes.dtype))
    if len(indices):
        _inner_rows(csr.indptr, csr.indices, nodes, new_id, indptr, indices)
    if train_idx is not None:
        train_idx = new_id[train_idx]
        train_idx = train_idx[train_idx >= 0]
    return Csr(indptr, indices), train_idx


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
