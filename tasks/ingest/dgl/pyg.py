"""A graph of PyG that `torch.save` wrote."""

from __future__ import annotations

from typing import Any

from configs.moments import TimeUnit
from configs.registry import DATASETS
from tasks.ingest.base import FileDataset
from tasks.ingest.dgl.configs import PygFileConfig
from tasks.stage import StageContext

_FIELDS = (
    "features",
    "categories",
    "labels",
    "train",
    "valid",
    "test",
    "time",
    "ids",
    "edge_features",
    "edge_categories",
    "weight",
    "edge_time",
)


@DATASETS.register("pyg")
class PygFile(FileDataset):
    """A graph of PyG that torch.save wrote: `HeteroData` or `Data`, for node and link tasks; read without PyG."""

    Config = PygFileConfig

    config: PygFileConfig

    def time_unit(self) -> TimeUnit | None:
        """Numbers; None where neither nodes nor edges have times."""
        [graph] = self._read().graphs
        of_nodes = any(self.config.time in data for data in graph.ndata.values())
        return "number" if of_nodes or any(self.config.edge_time in data for data in graph.edata.values()) else None

    def ingest(self, context: StageContext) -> dict[str, Any]:
        """Check the arrays and write them as tables."""
        from tasks.ingest.dgl.fields import check_names
        from tasks.ingest.dgl.tables import DglTables

        saved = self._read()
        [graph] = saved.graphs
        check_names(self.config, graph, saved.labels, self.path)
        return DglTables(self.config, self.path, graph, saved.labels, context).one()

    def _read(self) -> Any:
        from tasks.readers.pyg_file import read_pyg_file

        # Masks of edges have the names of those of nodes.
        return read_pyg_file(self.path, [getattr(self.config, option) for option in _FIELDS], self.config.ids)
