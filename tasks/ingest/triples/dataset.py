"""Knowledge graphs of users: triples with names, in a folder of splits or in files that are dealt out."""

from __future__ import annotations

from typing import Any

from configs.errors import DataError
from configs.moments import TimeUnit
from configs.registry import DATASETS
from tasks.ingest.base import Dataset
from tasks.ingest.triples.configs import TripleFilesConfig
from tasks.ingest.triples.sources import find_sources
from tasks.stage import StageContext
from tasks.storage.home_files.source_digests import SourceDigests


@DATASETS.register("triples")
class TripleFiles(Dataset):
    """Knowledge graph of your own: triples of head, relation and tail in Parquet, CSV, TSV or N-Triples.

    Names become numbers by a hash index; they are kept, so that predictions come back under your names.
    """

    config: TripleFilesConfig

    def fingerprint(self, digests: SourceDigests) -> dict[str, Any]:
        """Names and contents of all files, by what they are for; files that are missing count none."""
        try:
            return digests.describe(find_sources(self.config).described())
        except DataError as error:
            digests.missing.append(str(error))
            return digests.describe({})

    def time_unit(self) -> TimeUnit | None:
        """What the column of times counts, by its first rows; None where there is none. Raises DataError."""
        if self.config.time is None:
            return None
        if self.config.time_format:
            return "seconds"
        from tasks.ingest.tables.batches import Problems
        from tasks.ingest.tables.times import time_unit
        from tasks.ingest.triples.reader import TripleReader

        files = find_sources(self.config).triples
        reader = TripleReader(self.config, Problems(), lambda _: None, files)
        for paths in files.values():
            for batch, columns in reader.read(paths[0]):
                return time_unit(batch, columns["time"])
        return "number"

    def ingest(self, context: StageContext) -> dict[str, Any]:
        """Read all triples, then deal them out and write them. Raises DataError with what is wrong."""
        from tasks.ingest.triples.ingest import ingest_triples

        return ingest_triples(self.config, find_sources(self.config), context)
