"""Graphs that `dgl.save_graphs` wrote."""

from __future__ import annotations

from typing import Any

from configs.errors import DataError
from configs.moments import TimeUnit
from configs.registry import DATASETS
from tasks.ingest.base import FileDataset
from tasks.ingest.configs import DglFileConfig
from tasks.stage import StageContext


@DATASETS.register("dgl")
class DglFile(FileDataset):
    """Graphs that dgl.save_graphs wrote: one for node and link tasks, with types of nodes and edges, or many.

    For graphs that fit into memory: the whole file is read at once. DGL is not needed for it.
    """

    Config = DglFileConfig

    config: DglFileConfig

    def time_unit(self) -> TimeUnit | None:
        """Numbers; None where neither nodes nor edges have times."""
        from tasks.readers.dgl_file import read_dgl_file

        saved = read_dgl_file(self.path)
        data = [*saved.graphs[0].ndata.values(), *saved.graphs[0].edata.values()]
        return "number" if any(self.config.time in each for each in data) else None

    def ingest(self, context: StageContext) -> dict[str, Any]:
        """Check the arrays and write them as tables."""
        from tasks.ingest.dgl_tables import DglTables, check_names, end_to_end
        from tasks.readers.dgl_file import read_dgl_file

        path = self.path
        saved = read_dgl_file(path)
        check_names(self.config, saved, path)
        if self.config.task == "graph":
            return DglTables(self.config, path, end_to_end(saved, path), saved.labels, context).many(saved)
        if self.config.graph >= len(saved.graphs):
            raise DataError(f"holds {len(saved.graphs)} graphs; dataset.graph must be below that", path=path)
        return DglTables(self.config, path, saved.graphs[self.config.graph], saved.labels, context).one()
