"""A database: tables with keys, foreign keys and times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from configs.registry import DATASETS
from tasks.ingest.base import Dataset
from tasks.ingest.database.configs import DatabaseConfig
from tasks.ingest.tables.paths import describe_tables, tell_versions
from tasks.stage import StageContext
from tasks.storage.home_files.source_digests import SourceDigests

if TYPE_CHECKING:
    from tasks.ingest.tables.intake import Intake


@DATASETS.register("database")
class Database(Dataset):
    """A database: tables with keys, foreign keys and times, and what of an entity is predicted at which moments.

    Rows are nodes of their table's type and foreign keys edges; what is predicted, an entity at a moment, is a node
    type of its own. The horizon's rows make labels, and no more than that.
    """

    config: DatabaseConfig
    intake: Intake | None = None
    """What was met in the tables, once they were read; also where that ended with mistakes."""

    def fingerprint(self, digests: SourceDigests) -> dict[str, Any]:
        """Names and contents of all files, in the order in which they are read, or versions of tables."""
        return describe_tables(self._files(), digests)

    def _files(self) -> dict[str, tuple[str, ...]]:
        config = self.config
        tables = {name: table.files for name, table in config.tables.items()}
        return tables | ({"predict.labels": config.predict.labels.files} if config.predict.labels else {})

    def ingest(self, context: StageContext) -> dict[str, Any]:
        """Read all tables. Raises DataError with all mistakes that were met."""
        from tasks.ingest.database.ingest import ingest_database
        from tasks.ingest.tables.intake import Intake

        self.intake = Intake()
        tell_versions(self._files(), context)
        return ingest_database(self.config, context, self.intake)
