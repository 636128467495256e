"""Users' own tables: Parquet, CSV, TSV and edge lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from configs.errors import RecipeError
from configs.moments import TimeUnit
from configs.registry import DATASETS
from tasks.ingest.base import Dataset
from tasks.ingest.graph_tables.configs import TablesConfig
from tasks.ingest.tables.paths import describe_tables, tell_versions
from tasks.stage import StageContext
from tasks.storage.home_files.source_digests import SourceDigests

if TYPE_CHECKING:
    from tasks.ingest.tables.intake import Intake


@DATASETS.register("tables")
class UserTables(Dataset):
    """Your own graph: node and edge tables in Parquet, CSV, TSV or edge lists, ids of any kind.

    Original ids become dense ones by a hash index; the map is kept, so that predictions come back under your ids.
    """

    config: TablesConfig
    intake: Intake | None = None
    """What was met in the tables, once they were read; also where that ended with mistakes."""

    def fingerprint(self, digests: SourceDigests) -> dict[str, Any]:
        """Names and contents of all files, in the order in which they are read, or versions of tables."""
        return describe_tables(self._files(), digests)

    def _files(self) -> dict[str, tuple[str, ...]]:
        config = self.config
        tables = {f"nodes {nodes.type}": nodes.files for nodes in config.nodes if nodes.files}
        tables |= {f"feature_file {nodes.type}": (nodes.feature_file,) for nodes in config.nodes if nodes.feature_file}
        tables |= {f"edges {number}": edges.files for number, edges in enumerate(config.edges)}
        tables |= {"labels": config.labels.files} if config.labels else {}
        tables |= {f"split {name}": (path,) for name, path in config.split.files.items()}
        return tables

    def time_unit(self) -> TimeUnit | None:
        """What the time columns count, by their first rows; None where no table names one.

        Raises DataError: a file or column is missing. Raises RecipeError: one column holds dates, another one numbers.
        """
        from tasks.ingest.graph_tables.ingest import with_headers_found
        from tasks.ingest.tables.intake import Intake
        from tasks.ingest.tables.times import time_unit

        columns: dict[TimeUnit, str] = {}
        config = with_headers_found(self.config, Intake())
        for section, tables in (("nodes", config.nodes), ("edges", config.edges)):
            for table in tables:
                if table.time:
                    texts = (table.time,) if table.time_format else ()
                    first = next(Intake().batches(table, [table.time], texts, (), (table.time,)), None)
                    unit: TimeUnit = "number" if first is None else time_unit(first, table.time)
                    unit = "seconds" if table.time_format else unit
                    columns[unit] = f"{table.time} of dataset.{section}"
        if len(columns) > 1:
            raise RecipeError(
                f"dataset: {columns['seconds']} holds dates or time stamps, {columns['number']} whole numbers: they do "
                "not compare; store both alike"
            )
        return next(iter(columns), None)

    def ingest(self, context: StageContext) -> dict[str, Any]:
        """Read nodes, then edges, then splits. Raises DataError with all mistakes that were met."""
        from tasks.ingest.graph_tables.ingest import ingest_tables
        from tasks.ingest.tables.intake import Intake

        self.intake = Intake()
        tell_versions(self._files(), context)
        return ingest_tables(self.config, context, self.intake)
