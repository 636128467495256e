"""Numeric features of nodes in WholeGraph's memory, where its package pylibwholegraph is installed.

Never run: written after the package's own description (26.10), and tested with a stand-in of its functions. The table
is cut by rank as `device_rows` cuts it; what differs is who brings rows: WholeGraph, with messages of its own. Nothing
is kept from one group of batches to the next.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from configs.errors import RecipeError
from tasks.processes.device import wait_for
from tasks.sampling.parts.device_rows import DeviceRows, Group
from tasks.sampling.parts.exchange import Array
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.rows.features import FeatureSource

_PACKAGE = "pylibwholegraph"


def refuse_missing() -> None:
    """Raise RecipeError where the package is not installed."""
    if importlib.util.find_spec(_PACKAGE) is None:
        raise RecipeError(
            f"train.strategy.rows_on=wholegraph needs {_PACKAGE}, which is not installed: pip install "
            f"{_PACKAGE}-cu13, or -cu12, as torch's CUDA is; or set train.strategy.rows_on=device"
        )


class WholeGraphRows(DeviceRows):
    """Each rank fills the rows of its own range in a table of all nodes; rows are gathered by the nodes' ids."""

    def __init__(self, graph: PartGraph, features: FeatureSource, device: torch.device) -> None:
        """Make the table; all ranks together. Errors as of `DeviceRows`, or RecipeError: the package is missing."""
        refuse_missing()
        super().__init__(graph, (0, 0), features, device)  # no row is read here
        one = self._stored(self.feat[:1])
        self.own = self.came = one.new_zeros((1, one.shape[1]), device=device)
        self._table = self._make_table(graph, one)

    def missing(self, wanted: Sequence[Array]) -> Array:
        """Return no node: nothing is kept."""
        return wanted[0][:0]

    def _make_table(self, graph: PartGraph, one: torch.Tensor) -> Any:
        import pylibwholegraph.torch as library

        exchange, local_size = graph.exchange, graph.local_size
        library.init(exchange.rank, exchange.world_size, exchange.rank % local_size, local_size, "error")
        ranks = library.get_global_communicator("nccl")
        shape, sizes = [graph.manifest.num_nodes, one.shape[1]], np.diff(graph.bounds).tolist()
        table = library.create_wholememory_tensor(ranks, "distributed", "cuda", shape, one.dtype, None, sizes)
        own, first = table.get_local_tensor()
        assert (len(own), first) == (len(self.feat), graph.own[0]), "WholeGraph cuts the table as it is told"
        self._fill(own)
        wait_for(self.device)
        ranks.barrier()
        return table

    def _ask(self, nodes: Array, rows: Sequence[Array]) -> Group:
        return Group(torch.from_numpy(nodes.copy()).to(self.device))

    def _fetch(self, group: Group) -> None:
        self.came = self._table.gather(group.asked)
