"""Graphs that `dgl.save_graphs` wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from configs.errors import DataError
from configs.moments import TimeUnit
from configs.registry import DATASETS
from tasks.ingest.base import FileDataset
from tasks.ingest.dgl.configs import DglFileConfig
from tasks.stage import StageContext
from tasks.storage.source_digests import SourceDigests

if TYPE_CHECKING:
    from tasks.readers.dgl_file import SavedGraph, SavedGraphs


@DATASETS.register("dgl")
class DglFile(FileDataset):
    """Graphs that dgl.save_graphs wrote: one for node and link tasks, with types of nodes and edges, or many.

    For graphs that fit into memory: the whole file is read at once. DGL is not needed for it.
    """

    Config = DglFileConfig

    config: DglFileConfig

    def fingerprint(self, digests: SourceDigests) -> dict[str, Any]:
        """As of any file; 2: categories of all types share their codes."""
        return {**super().fingerprint(digests), "dgl": 2}

    def time_unit(self) -> TimeUnit | None:
        """Numbers; None where neither nodes nor edges have times."""
        from tasks.readers.dgl_file import read_dgl_file

        graph = self._first(read_dgl_file(self.path))
        data = [*graph.ndata.values(), *graph.edata.values()]
        return "number" if any(self.config.time in each for each in data) else None

    def ingest(self, context: StageContext) -> dict[str, Any]:
        """Check the arrays and write them as tables."""
        from tasks.ingest.dgl.fields import check_names, end_to_end
        from tasks.ingest.dgl.tables import DglTables
        from tasks.readers.dgl_file import read_dgl_file

        path, config = self.path, self.config
        saved = read_dgl_file(path)
        graph = end_to_end(saved, path) if config.task == "graph" else self._first(saved)
        check_names(config, graph, saved.labels, path)
        tables = DglTables(config, path, graph, saved.labels, context)
        return tables.many(saved) if config.task == "graph" else tables.one()

    def _first(self, saved: SavedGraphs) -> SavedGraph:
        """Return the graph that is read, of many the first. Raises DataError where there is none of that number."""
        number = 0 if self.config.task == "graph" else self.config.graph
        if number >= len(saved.graphs):
            raise DataError(f"holds {len(saved.graphs)} graphs; dataset.graph must be below that", path=self.path)
        return saved.graphs[number]
