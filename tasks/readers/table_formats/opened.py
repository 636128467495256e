"""Tables that keep their versions, opened once each."""

from __future__ import annotations

from configs.values.versioned_tables import TableReference
from tasks.readers.table_formats.delta import DeltaLakeTable
from tasks.readers.table_formats.iceberg import IcebergTable
from tasks.readers.table_formats.tables import VersionedTable

OPENED: dict[str, VersionedTable] = {}
"""By reference, for the rest of the process: flow runs have one each."""


def open_versioned(reference: TableReference) -> VersionedTable:
    """Open a table as of a version; the same for the rest of the process. Raises DataError."""
    name = str(reference)
    if name not in OPENED:
        if reference.format == "delta":
            OPENED[name] = DeltaLakeTable(reference)
        else:
            OPENED[name] = IcebergTable(reference)
    return OPENED[name]
