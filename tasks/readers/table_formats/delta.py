"""Tables of Delta Lake, read by the package deltalake."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from configs.errors import DataError
from configs.source_files import user_path
from tasks.readers.table_formats.addresses import ENVIRONMENT, check_address, scheme_of
from tasks.readers.table_formats.tables import BATCH_ROWS, Version, VersionedTable, missing_package, short_text

_REWRITE = "copy the table (CREATE TABLE ... AS SELECT) and name the copy"
_FEATURES = frozenset({"timestampNtz", "variantType", "variantType-preview"})
"""Features of readers with which a table's Parquet files say all (deltalake 1.6)."""
_ELSEWHERE = re.compile(r"/|[A-Za-z][\w+.-]*:")
_GONE = re.compile(r"not found|no such file", re.IGNORECASE)
_DAMAGED = re.compile(r"magic bytes not found", re.IGNORECASE)


class DeltaLakeTable(VersionedTable):
    """A table of Delta Lake; versions count from 0."""

    package = "deltalake"

    def versions(self) -> list[Version]:
        """Return those that the log still tells of."""
        with self._errors("there is no table of Delta Lake that can be read"):
            table = self._open(None)
            history = [
                (int(one["version"]), one.get("inCommitTimestamp", one.get("timestamp"))) for one in table.history()
            ]
        if table.version() not in dict(history) or None in dict(history).values():
            why = "its log does not say when a version was made (commitInfo); write one by another engine"
            raise DataError(why, path=self.path)
        versions, latest = [], 0
        for number, milliseconds in sorted(history):
            latest = max(latest, int(milliseconds))  # clocks of writers may differ
            versions.append(Version(str(number), latest))
        return versions

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
            actions = pa.table(self._table.get_add_actions(flatten=True))
            self._check_features(actions.column("path").to_pylist())
            dataset = self._table.to_pyarrow_dataset()
            times = dict(
                zip(*(actions.column(name).to_pylist() for name in ("path", "modification_time")), strict=True)
            )

            def order(fragment: Any) -> tuple[Any, str]:
                name = next((one for one in times if fragment.path.endswith(one)), fragment.path)
                return str(times.get(name, "")), name

            for fragment in sorted(dataset.get_fragments(), key=order):
                yield from fragment.to_batches(schema=dataset.schema, columns=list(columns), batch_size=BATCH_ROWS)

    def _check_features(self, names: Sequence[str]) -> None:
        """Raise DataError for a version of which the Parquet files `names` do not say all.

        What counts is what the log holds: its actions and columns, whichever features its protocol lists. Of columns
        under other names deltalake's data set would say that all cells are empty, of deletion vectors nothing.
        """
        mapping = self._table.metadata().configuration.get("delta.columnMapping.mode", "none")
        features = set(self._table.protocol().reader_features or ())
        if "columnMapping" in features or mapping != "none" or _is_renamed(json.loads(self._table.schema().to_json())):
            raise DataError(
                "its columns were renamed or dropped without rewriting its files (delta.columnMapping.mode="
                f"{mapping}), which graphmill does not read; {_REWRITE}, or ALTER TABLE ... DROP FEATURE columnMapping",
                path=self.path,
            )
        is_deleted = "deletionVectors" in features
        if not is_deleted and not features - _FEATURES:  # deltalake reads no actions of others
            try:
                deleted = pa.RecordBatchReader.from_stream(self._table.deletion_vectors())
                is_deleted = any(batch.num_rows for batch in deleted)
            except self._library.exceptions.DeltaError:
                is_deleted = True  # a vector that cannot be read, or whose file is gone
        if is_deleted:
            raise DataError(
                "its rows may be deleted by deletion vectors, beside its files (delta.enableDeletionVectors), which "
                f"graphmill does not read; {_REWRITE}, or ALTER TABLE ... DROP FEATURE deletionVectors",
                path=self.path,
            )
        if features - _FEATURES:
            raise DataError(
                f"needs the features {', '.join(sorted(features - _FEATURES))} of readers, which graphmill does not "
                f"have; {_REWRITE}",
                path=self.path,
            )
        place = self._place
        folder = None if "://" in place else os.path.realpath(place)
        for name in names:
            here = "" if folder is None else os.path.realpath(Path(folder) / unquote(name))
            is_outside = folder is not None and not here.startswith(f"{folder.rstrip('/')}/")
            if is_outside or _ELSEWHERE.match(name) or ".." in unquote(name).split("/"):
                raise DataError(
                    f"its log names a file outside of its folder, {name} (a shallow clone does), which graphmill does "
                    f"not read; {_REWRITE}",
                    path=self.path,
                )

    @cached_property
    def _table(self) -> Any:
        with self._errors("cannot be read"):
            return self._open(int(self.version.id))

    def _open(self, version: int | None) -> Any:
        check_address(self.reference.table, self.path, ENVIRONMENT, os.environ)
        return self._library.DeltaTable(self._place, version=version)

    @property
    def _place(self) -> str:
        place = self.reference.table
        return str(user_path(place)) if scheme_of(place) == "file" else place

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
                f"named without `delta:` ({short_text(error)})",
                path=self.path,
            ) from error
        except FileNotFoundError as error:
            why = f"files of this version are gone, perhaps vacuumed away ({short_text(error)}); read a newer version"
            raise DataError(why, path=self.path) from error
        except (exceptions.DeltaError, OSError, pa.ArrowException) as error:
            if _GONE.search(_DAMAGED.sub("", str(error))):
                hint = "what it needs is gone, perhaps vacuumed away or cleaned out of the log; read a newer version"
                raise DataError(f"{what}: {hint} ({short_text(error)})", path=self.path) from error
            raise DataError(f"{what} ({short_text(error)})", path=self.path) from error


def _is_renamed(columns: Any) -> bool:
    """Whether a part of a schema in JSON says that a column is called otherwise in the files."""
    if isinstance(columns, dict):
        physical = (columns.get("metadata") or {}).get("delta.columnMapping.physicalName", columns.get("name"))
        return physical != columns.get("name") or any(map(_is_renamed, columns.values()))
    return isinstance(columns, list) and any(map(_is_renamed, columns))
