"""A table of Delta Lake or Iceberg as of one version: which it is, its columns, its rows in an order of its own.

The version is found out once in a process: a run reads one and the same, whoever writes meanwhile.
"""

from __future__ import annotations

import abc
import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from configs.errors import DataError
from configs.moments import last_time
from configs.values.versioned_tables import TableReference
from tasks.readers.columns import check_columns, check_names, plain_batch

BATCH_ROWS = 1 << 16
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Version:
    """One version of a table."""

    id: str
    """Number (Delta Lake) or id (Iceberg)."""
    milliseconds: int
    """When it was made, since 1970."""

    @property
    def text(self) -> str:
        """For people."""
        at = datetime.datetime.fromtimestamp(self.milliseconds / 1000, datetime.UTC)
        return f"{self.id} of {at.isoformat(timespec='seconds')}"


class VersionedTable(abc.ABC):
    """A table as of one version."""

    package: str
    """What reads it."""

    def __init__(self, reference: TableReference) -> None:
        """Find the version. Raises DataError: no such package, table or version."""
        self.reference = reference
        self.path = Path(str(reference))
        """How messages call it."""
        versions = self.versions()
        if not versions:
            raise DataError("has no version: nothing was written to it", path=self.path)
        self.newest = self.version = versions[-1]
        if reference.as_of is not None:
            until = last_time(reference.as_of, "milliseconds")
            older = [version for version in versions if version.milliseconds <= until]
            if not older:
                raise DataError(
                    f"has no version as of {reference.as_of}: the oldest that is known is {versions[0].text}; take a "
                    "later moment",
                    path=self.path,
                )
            self.version = older[-1]
        elif reference.version is not None:
            self.version = self.named(reference.version, versions)

    def named(self, version: str, versions: Sequence[Version]) -> Version:
        """Return the version that a recipe names. Raises DataError."""
        for one in versions:
            if one.id == (version.lstrip("0") or "0"):
                return one
        raise DataError(
            f"there is no version {version}: known are {versions[0].text} to {versions[-1].text} ({len(versions):,}); "
            "name one of them, or none for the newest",
            path=self.path,
        )

    @property
    def facts(self) -> dict[str, Any]:
        """What identifies the content: for keys of artifacts and for manifests."""
        return {
            "format": self.reference.format,
            "table": self.identity(),
            "version": self.version.id,
            "milliseconds": self.version.milliseconds,
        }

    @property
    def text(self) -> str:
        """Say which version is read."""
        newest = "" if self.version.id != self.newest.id else ", the newest"
        return f"{self.reference.name}: version {self.version.text}{newest}"

    @abc.abstractmethod
    def versions(self) -> list[Version]:
        """Return all that are known, oldest first. Raises DataError: no such table."""

    @abc.abstractmethod
    def identity(self) -> str:
        """Return what tells the table from others, also at another place."""

    @abc.abstractmethod
    def schema(self, version: Version) -> pa.Schema:
        """Return a version's columns."""

    @abc.abstractmethod
    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield batches of some columns, in the same order each time."""

    def column_names(self) -> list[str]:
        """Return the columns. Raises DataError."""
        names = list(self.schema(self.version).names)
        check_names(names, self.path)
        return names

    def read(self, columns: Sequence[str], documents: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """Yield batches of some columns, plain; `documents`: see `plain_batch`. Raises DataError."""
        there = self.column_names()
        missing = [name for name in columns if name not in there]
        if missing and self.version.id != self.newest.id:
            later = set(self.schema(self.newest).names)
            if set(missing) <= later:
                raise DataError(
                    f"has no column {missing[0]!r} in version {self.version.id}; the newest, {self.newest.text}, has "
                    "it: the columns changed in between; read a later version, or leave the column out",
                    path=self.path,
                )
        check_columns(self.path, columns, there)
        row = 0
        for batch in self.scan(list(columns) or there[:1]):
            yield plain_batch(batch, self.path, row, documents=documents)
            row += batch.num_rows


def short_text(error: Exception) -> str:
    """Return what a library says, on one line and without colors."""
    return " ".join(_COLORS.sub("", str(error)).split())[:300]


def missing_package(reference: TableReference, package: str, extra: str) -> DataError:
    """Return the error of a package that is not installed."""
    return DataError(
        f"needs the package {package}, which is not installed: pip install 'graphmill[{extra}]'", path=str(reference)
    )
