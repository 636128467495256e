"""Tables of Delta Lake, read by the package deltalake."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import pyarrow as pa

from configs.errors import DataError
from configs.source_files import user_path
from tasks.readers.table_formats.tables import BATCH_ROWS, Version, VersionedTable, missing_package

_REWRITE = "copy the table (CREATE TABLE ... AS SELECT) and name the copy"
_GONE = re.compile(r"not found|no such file", re.IGNORECASE)
_DAMAGED = re.compile(r"magic bytes not found", re.IGNORECASE)
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


class DeltaLakeTable(VersionedTable):
    """A table of Delta Lake; versions count from 0."""

    package = "deltalake"

    def versions(self) -> list[Version]:
        """Return those that the log still tells of."""
        with self._errors("there is no table of Delta Lake that can be read"):
            table = self._open(None)
            history = [(int(one["version"]), int(one["timestamp"])) for one in table.history()]
        found, latest = [], 0
        for number, milliseconds in sorted(history):
            latest = max(latest, milliseconds)  # clocks of writers may differ
            found.append(Version(str(number), latest))
        return found

    def identity(self) -> str:
        """Return the table's own id and the version's files: copies of a table have one id, and may go on apart."""
        with self._errors("cannot be read"):
            actions = pa.table(self._table.get_add_actions(flatten=True))
            names = sorted(actions.column("path").to_pylist())
            return f"{self._table.metadata().id}-{hashlib.sha256(chr(10).join(names).encode()).hexdigest()[:16]}"

    def schema(self, version: Version) -> pa.Schema:
        """Return the columns."""
        table = self._table if version is self.version else None
        with self._errors("cannot be read"):
            return pa.schema((table or self._open(int(version.id))).schema().to_arrow())

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows file by file, in the order in which the files were added."""
        with self._errors("cannot be read"):
            self._check_features()
            dataset, actions = self._table.to_pyarrow_dataset(), pa.table(self._table.get_add_actions(flatten=True))
            times = dict(
                zip(*(actions.column(name).to_pylist() for name in ("path", "modification_time")), strict=True)
            )

            def order(fragment: Any) -> tuple[Any, str]:
                name = next((one for one in times if fragment.path.endswith(one)), fragment.path)
                return str(times.get(name, "")), name

            for fragment in sorted(dataset.get_fragments(), key=order):
                yield from fragment.to_batches(schema=dataset.schema, columns=list(columns), batch_size=BATCH_ROWS)

    def _check_features(self) -> None:
        """Raise DataError for a version of which plain Parquet files do not say all.

        Of columns under other names deltalake's data set says so itself only for tables of reader version 3; of those
        of version 2 all cells would be empty.
        """
        protocol = self._table.protocol()
        features = set(protocol.reader_features or ())
        mapping = self._table.metadata().configuration.get("delta.columnMapping.mode", "none")
        if "columnMapping" in features or (protocol.min_reader_version >= 2 and mapping != "none"):
            raise DataError(
                "its columns were renamed or dropped without rewriting its files (delta.columnMapping.mode="
                f"{mapping}), which graphmill does not read; {_REWRITE}, or ALTER TABLE ... DROP FEATURE columnMapping",
                path=self.path,
            )
        if "deletionVectors" in features:
            raise DataError(
                "its rows may be deleted by deletion vectors, beside its files (delta.enableDeletionVectors), which "
                f"graphmill does not read; {_REWRITE}, or ALTER TABLE ... DROP FEATURE deletionVectors",
                path=self.path,
            )

    @cached_property
    def _table(self) -> Any:
        with self._errors("cannot be read"):
            return self._open(int(self.version.id))

    def _open(self, version: int | None) -> Any:
        place = self.reference.table
        place = place if "://" in place else str(user_path(place))
        return self._library.DeltaTable(place, version=version)

    @cached_property
    def _library(self) -> Any:
        try:
            import deltalake
        except ImportError:
            raise missing_package(self.reference, "deltalake", "delta") from None
        return deltalake

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Say of the library's errors which table they are about, and a way out."""
        exceptions = self._library.exceptions
        try:
            yield
        except DataError:
            raise
        except exceptions.TableNotFoundError as error:
            raise DataError(
                f"there is no table of Delta Lake at {self.reference.table}: it has no _delta_log; plain files are "
                f"named without `delta:` ({_short(error)})",
                path=self.path,
            ) from error
        except FileNotFoundError as error:
            raise DataError(
                f"files of this version are gone, perhaps vacuumed away ({_short(error)}); read a newer version",
                path=self.path,
            ) from error
        except (exceptions.DeltaError, OSError, pa.ArrowException) as error:
            if _GONE.search(_DAMAGED.sub("", str(error))):
                hint = "what it needs is gone, perhaps vacuumed away or cleaned out of the log; read a newer version"
                raise DataError(f"{what}: {hint} ({_short(error)})", path=self.path) from error
            raise DataError(f"{what} ({_short(error)})", path=self.path) from error


def _short(error: Exception) -> str:
    return " ".join(_COLORS.sub("", str(error)).split())[:300]
