"""METIS, through the library inside pymetis."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs.errors import StageError
from configs.registry import PARTITIONERS
from tasks.arrays import Array
from tasks.partition.base import Csr, PartitionContext, Partitioner
from tasks.processes.children import call_in_child, describe_exit, shared_array
from tasks.processes.memory import available_bytes

# METIS 5.1 manual, section 5.4: positions in the options array.
_NUM_OPTIONS, _OPTION_NCUTS, _OPTION_SEED, _OPTION_UFACTOR = 40, 7, 8, 16
_METIS_OK, _METIS_ERROR_MEMORY = 1, -3


@PARTITIONERS.register("metis")
class MetisPartitioner(Partitioner):
    """METIS k-way: the fewest cut edges on small and medium graphs, about 100 bytes of memory an edge.

    Raises StageError when METIS runs out of memory.
    """

    def partition(self, csr: Csr, num_parts: int, context: PartitionContext | None = None) -> NDArray[np.int32]:
        context = context or PartitionContext()
        needed, free = self.config.memory_bytes(csr.num_nodes, csr.num_edges), available_bytes()
        assert needed is not None
        if needed > free:
            context.warn(
                f"METIS needs about {needed / 1e9:.1f} GB for {csr.num_edges:,} edges and {free / 1e9:.1f} GB are "
                "free: take partition.name=coarsened (a tenth of the memory, cuts about as few edges)"
            )
        weights = None
        if context.train_idx is not None:  # a second constraint: training nodes
            weights = np.ones((csr.num_nodes, 1), np.int64) * (1, 0)
            weights[context.train_idx, 1] = 1
        options = MetisOptions(self.config.imbalance, self.config.seed)
        return part_graph(csr.indptr, csr.indices, num_parts, options, node_weight=weights)


@dataclass(frozen=True)
class MetisOptions:
    """How METIS works."""

    imbalance: float
    """Allowed excess of the largest part, in 1/1000 steps."""
    seed: int
    tries: int = 1
    """Partitions to compute; the best is returned."""
    recursive: bool = False
    """Bisect again and again instead of splitting k ways at once."""


def part_graph(
    indptr: Array,
    indices: Array,
    num_parts: int,
    options: MetisOptions,
    *,
    node_weight: NDArray[np.int64] | None = None,
    edge_weight: NDArray[np.int64] | None = None,
) -> NDArray[np.int32]:
    """Call METIS_PartGraphKway or METIS_PartGraphRecursive; return the part of each node, int32 (N,).

    pymetis' own function takes one weight a node and answers with a Python list; the library that it brings is
    therefore called directly, in a forked child: during a call METIS takes SIGTERM for an error of its own, leaves its
    work half-done and says that all is well.

    The edges stand in both directions: integers (N + 1,) and (E,). `node_weight`, int64 (N, C), has C constraints,
    `edge_weight`, int64 (E,), is positive. Raises StageError when METIS fails (out of memory, in most cases).
    """
    library, width = _library()
    index, scalar = (np.int64, ctypes.c_int64) if width == 64 else (np.int32, ctypes.c_int32)
    num_nodes = len(indptr) - 1
    if width == 32 and len(indices) > np.iinfo(np.int32).max:
        raise StageError(
            f"this METIS counts in 32 bits, too few for {len(indices):,} edges: take partition.name=coarsened"
        )
    constraints = 1 if node_weight is None else node_weight.shape[1]
    numbers = np.full(_NUM_OPTIONS, -1, index)
    library.METIS_SetDefaultOptions(_pointer(numbers))
    numbers[_OPTION_NCUTS], numbers[_OPTION_SEED] = options.tries, options.seed
    numbers[_OPTION_UFACTOR] = max(1, round(options.imbalance * 1000))
    part = shared_array(num_nodes, index)
    status = shared_array(1, np.int64)
    # Names keep the converted arrays alive during the call.
    arrays = [
        None if array is None else np.ascontiguousarray(array, index)
        for array in (indptr, indices, node_weight, edge_weight)
    ]
    xadj, adjncy, vwgt, adjwgt = map(_pointer, arrays)
    counts = [scalar(num_nodes), scalar(constraints), scalar(num_parts)]
    n, ncon, nparts = (ctypes.byref(count) for count in counts)
    cut = scalar(0)
    solve = library.METIS_PartGraphRecursive if options.recursive else library.METIS_PartGraphKway
    given = (n, ncon, xadj, adjncy, vwgt, None, adjwgt, nparts, None, None, _pointer(numbers), ctypes.byref(cut))

    def fill() -> None:
        status[0] = solve(*given, _pointer(part))

    code = call_in_child(fill)
    if code or status[0] != _METIS_OK:
        reason = describe_exit(code) if code else f"error {status[0]}"
        if status[0] == _METIS_ERROR_MEMORY:
            reason = "it ran out of memory"
        raise StageError(
            f"METIS could not split {num_nodes:,} nodes and {len(indices):,} edges into {num_parts} parts ({reason}); "
            "take partition.name=coarsened"
        )
    return part.astype(np.int32)


def _pointer(array: NDArray[Any] | None) -> ctypes.c_void_p | None:
    return None if array is None else ctypes.c_void_p(array.ctypes.data)


def _library() -> tuple[ctypes.CDLL, int]:
    """Return the shared library inside pymetis and the width of its integers in bits."""
    import pymetis._internal as internal

    library = ctypes.CDLL(internal.__file__)
    if not hasattr(library, "METIS_PartGraphKway"):
        raise StageError(
            "this build of pymetis hides METIS' functions; install its wheel from PyPI (pip install pymetis)"
        )
    return library, int(internal._idx_type_width())
