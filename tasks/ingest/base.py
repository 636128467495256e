"""What a data set is."""

from __future__ import annotations

import abc
from pathlib import Path
from typing import Any

from configs.moments import TimeUnit
from configs.source_files import check_file, user_path
from tasks.stage import StageContext
from tasks.storage.home_files.source_digests import SourceDigests


class Dataset(abc.ABC):
    """A registered data set. Its `Config` is what a recipe's `dataset` section holds."""

    def __init__(self, config: Any) -> None:
        """Cheap: nothing is read before `fingerprint` or `ingest`."""
        self.config = config

    @abc.abstractmethod
    def fingerprint(self, digests: SourceDigests) -> dict[str, Any]:
        """Return what identifies the state of the source: part of the cache key.

        Files count by their content (`digests.describe`) and by what names of theirs the output depends on, never by
        where they lie or when they were written. `plan` calls it too.
        """

    def time_unit(self) -> TimeUnit | None:
        """Return what the data's times count; None where it has none."""
        return None

    @abc.abstractmethod
    def ingest(self, context: StageContext) -> dict[str, Any]:
        """Write tables into `context.work` and return the fields of DatasetManifest.

        Raises:
            DataError: naming file, row and column.
            RecipeError: naming an option.
        """


class GeneratedDataset(Dataset):
    """A data set that its options say all of."""

    generator = 1
    """Raised when the same options give other data."""

    def fingerprint(self, digests: SourceDigests) -> dict[str, Any]:
        """Which generator it is."""
        return {"generator": self.generator}


class FileDataset(Dataset):
    """A data set in one file, `path`."""

    @property
    def path(self) -> Path:
        """The file."""
        return user_path(self.config.path)

    def fingerprint(self, digests: SourceDigests) -> dict[str, Any]:
        """Name (the data set has it) and content of the file."""
        check_file(self.path)
        return digests.describe({self.path.stem: [(self.path.stem, self.path)]})
