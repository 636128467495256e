"""Vectors without edges."""

from __future__ import annotations

from typing import Any

from configs.registry import DATASETS
from tasks.ingest.base import Dataset
from tasks.ingest.tables.paths import describe_tables
from tasks.ingest.vectors.configs import VectorFilesConfig
from tasks.stage import StageContext
from tasks.storage.home_files.source_digests import SourceDigests


@DATASETS.register("vectors")
class Vectors(Dataset):
    """Vectors, a row each, to look at: .npy, .npz, Parquet, CSV or idx. Nearest neighbours become their edges."""

    config: VectorFilesConfig

    def fingerprint(self, digests: SourceDigests) -> dict[str, Any]:
        """Names and contents of all files, in the order in which they are read."""
        from tasks.ingest.vectors.gathered import with_files_beside

        config = with_files_beside(self.config)
        files = {"files": config.files, "ids": config.ids, "labels": config.labels}
        return describe_tables({name: paths for name, paths in files.items() if paths}, digests)

    def ingest(self, context: StageContext) -> dict[str, Any]:
        """Read ids and labels, then write the vectors as they come."""
        from tasks.ingest.vectors.gathered import gather, write_vectors

        return write_vectors(gather(self.config, context), self.config.title, context.work)
