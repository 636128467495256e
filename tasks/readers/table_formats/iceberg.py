"""Tables of Apache Iceberg, read by the package pyiceberg through a catalog of its configuration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import pyarrow as pa

from configs.errors import DataError
from tasks.readers.table_formats.tables import Version, VersionedTable, missing_package, short_text


class IcebergTable(VersionedTable):
    """A table of Iceberg; its versions are the snapshots of the main branch, and tags name some."""

    package = "pyiceberg"

    def versions(self) -> list[Version]:
        """Return the snapshots that were current once and are still there."""
        with self._errors():
            kept = {snapshot.snapshot_id for snapshot in self._table.snapshots()}
            log = [(entry.timestamp_ms, entry.snapshot_id) for entry in self._table.history()]
        return [Version(str(number), milliseconds) for milliseconds, number in sorted(log) if number in kept]

    def named(self, version: str, versions: Sequence[Version]) -> Version:
        """Return a snapshot by its id or tag. Raises DataError."""
        with self._errors():
            snapshot = self._table.snapshot_by_name(version)
            if snapshot is None and version.isdecimal():
                snapshot = self._table.snapshot_by_id(int(version))
        if snapshot is not None:
            return Version(str(snapshot.snapshot_id), int(snapshot.timestamp_ms))
        tags = [name for name in self._table.refs() if name != "main"]
        also = f", and the tags {', '.join(tags)}" if tags else ""
        raise DataError(
            f"there is no snapshot or tag {version}, or it has expired: known are {versions[0].text} to "
            f"{versions[-1].text} ({len(versions):,}){also}; name one of them, or none for the newest",
            path=self.path,
        )

    def identity(self) -> str:
        """Return the table's own id, and where its columns were changed after the version was written, which they are.

        A column that was renamed leaves its name to a new one: the same name in the same snapshot, and other content.
        """
        with self._errors():
            metadata, snapshot = self._table.metadata, self._table.snapshot_by_id(int(self.version.id))
            written = None if snapshot is None else snapshot.schema_id
        is_changed = self._columns_of(self.version) is None and written != metadata.current_schema_id
        return f"{metadata.table_uuid}{f'-{metadata.current_schema_id}' if is_changed else ''}"

    def _columns_of(self, version: Version) -> int | None:
        """Return the snapshot whose columns a version is read with; None: the table's present ones.

        Columns change without a snapshot. Who names no version gets the table as it is now; who names one, as it was.
        """
        is_present = not self.reference.is_fixed and version.id == self.newest.id
        return None if is_present else int(version.id)

    def schema(self, version: Version) -> pa.Schema:
        """Return the columns."""
        with self._errors():
            from pyiceberg.io.pyarrow import schema_to_pyarrow

            projected = self._table.scan(snapshot_id=self._columns_of(version)).projection()
            return schema_to_pyarrow(projected, include_field_ids=False)

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows file by file, in the order of the files' names."""
        with self._errors():
            scan = self._table.scan(snapshot_id=self._columns_of(self.version), selected_fields=tuple(columns))
            tasks = sorted(scan.plan_files(), key=lambda task: str(task.file.file_path))
            from pyiceberg.io.pyarrow import ArrowScan

            reader = ArrowScan(self._table.metadata, self._table.io, scan.projection(), scan.row_filter, True)
            num_rows = 0
            for batch in reader.to_record_batches(tasks):
                num_rows += batch.num_rows
                yield pa.RecordBatch.from_arrays([batch.column(name) for name in columns], names=list(columns))
            self._check_count(tasks, num_rows)

    def _check_count(self, tasks: Sequence[Any], num_rows: int) -> None:
        """Raise DataError unless as many rows were read as the manifests say: a deletion may have been passed over.

        Of deletions by position in Parquet files the manifests do not say how many rows of which file they are.
        """
        deletions = [one for task in tasks for one in task.delete_files]
        if any(one.file_format.name != "PUFFIN" for one in deletions):
            return
        expected = sum(task.file.record_count for task in tasks) - sum(one.record_count for one in deletions)
        if num_rows != expected:
            raise DataError(
                f"its manifests say that there are {expected:,} rows, and {num_rows:,} were read; write its "
                "files again (CALL system.rewrite_data_files)",
                path=self.path,
            )

    @cached_property
    def _table(self) -> Any:
        catalog, _, name = self.reference.table.partition(".")
        with self._errors():
            from tasks.readers.table_formats.iceberg_catalog import DataFiles, open_catalog

            table = open_catalog(catalog, self.path).load_table(name)
            if type(table.io) is not DataFiles:
                why = f"its catalog opens files by {type(table.io).__name__}, past graphmill's checks"
                raise DataError(why, path=self.path)
            return table

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Say of the library's errors which table they are about, and a way out."""
        try:
            from pyiceberg import exceptions
        except ImportError:
            raise missing_package(self.reference, "pyiceberg", "iceberg") from None
        catalog, _, name = self.reference.table.partition(".")
        try:
            yield
        except DataError:
            raise
        except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError) as error:
            raise DataError(f"the catalog {catalog} has no table {name}", path=self.path) from error
        except FileNotFoundError as error:
            why = f"files of this snapshot are gone ({short_text(error)}); read a newer one"
            raise DataError(why, path=self.path) from error
        except (ValueError, NotImplementedError) as error:
            if "equality deletes" in str(error):
                raise DataError(
                    "its rows may be deleted by equality deletes, beside its files, which pyiceberg does not read; "
                    "write its files again (CALL system.rewrite_data_files), or copy the table",
                    path=self.path,
                ) from error
            if "URI" in str(error) or "catalog" in str(error).lower():
                raise DataError(
                    f"there is no catalog {catalog} in pyiceberg's configuration ({short_text(error)}); describe it in "
                    f"~/.pyiceberg.yaml, or by PYICEBERG_CATALOG__{catalog.upper()}__URI",
                    path=self.path,
                ) from error
            raise DataError(f"cannot be read ({short_text(error)})", path=self.path) from error
        except Exception as error:  # pyiceberg lets errors of Avro, SQLAlchemy, JSON and Arrow through as they are
            raise DataError(f"cannot be read ({type(error).__name__}: {short_text(error)})", path=self.path) from error
