"""Files of graphs that DGL or PyG saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from configs.errors import DataError
from configs.moments import TimeUnit
from configs.registry import DATASETS
from tasks.ingest.base import FileDataset
from tasks.ingest.dgl.configs import DglFileConfig, GraphFileConfig, PygFileConfig
from tasks.stage import StageContext

if TYPE_CHECKING:
    from tasks.readers.arrays.dgl_file import SavedGraph, SavedGraphs


class GraphFile(FileDataset):
    """Graphs with arrays on nodes and edges, in one file that is read at once."""

    config: GraphFileConfig

    def read(self) -> SavedGraphs:
        """Read the file. Raises DataError."""
        raise NotImplementedError

    def time_unit(self) -> TimeUnit | None:
        """Numbers; None where neither nodes nor edges have times."""
        graph = self._first(self.read())
        fields = [(self.config.field_of("time", edges=False), data) for data in graph.ndata.values()]
        fields += [(self.config.field_of("time", edges=True), data) for data in graph.edata.values()]
        return "number" if any(name in data for name, data in fields) else None

    def ingest(self, context: StageContext) -> dict[str, Any]:
        """Check the arrays and write them as tables."""
        from tasks.ingest.dgl.fields import GraphSource, check_names, end_to_end
        from tasks.ingest.dgl.tables import GraphTables

        saved, many = self.read(), self.config.task == "graph"
        graph = end_to_end(saved, self.path) if many else self._first(saved)
        source = GraphSource(self.config, self.path, graph, saved.labels)
        check_names(source)
        tables = GraphTables(source, context)
        return tables.many(saved) if many else tables.one()

    def _first(self, saved: SavedGraphs) -> SavedGraph:
        number = 0 if self.config.task == "graph" else getattr(self.config, "graph", 0)
        if number >= len(saved.graphs):
            raise DataError(f"holds {len(saved.graphs)} graphs; dataset.graph must be below that", path=self.path)
        return saved.graphs[number]


@DATASETS.register("dgl")
class DglFile(GraphFile):
    """Graphs that dgl.save_graphs wrote: one for node and link tasks, with types of nodes and edges, or many.

    For graphs that fit into memory: the whole file is read at once. DGL is not needed for it.
    """

    config: DglFileConfig

    def read(self) -> SavedGraphs:
        """See GraphFile."""
        from tasks.readers.arrays.dgl_file import read_dgl_file

        return read_dgl_file(self.path)


@DATASETS.register("pyg")
class PygFile(GraphFile):
    """A graph of PyG that torch.save wrote: `HeteroData` or `Data`, for node and link tasks; read without PyG."""

    config: PygFileConfig

    def read(self) -> SavedGraphs:
        """See GraphFile."""
        from tasks.readers.arrays.pyg_file import read_pyg_file

        # Masks of edges have the names of those of nodes.
        return read_pyg_file(self.path, self.config.read_fields, self.config.ids)
