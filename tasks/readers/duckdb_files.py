"""What DuckDB keeps a database in: a file, and its write-ahead logs beside."""

from __future__ import annotations

import os
from pathlib import Path

from configs.source_files import open_file

MAGIC = b"DUCK"
"""Bytes 8 to 11 of every file."""


_LOGS = (".wal", ".wal.checkpoint", ".wal.recovery")
"""The last two while a checkpoint is made, and where one was cut off (DuckDB 2.0)."""


def logs_of(path: Path) -> list[tuple[str, Path]]:
    """Return ending and path of the write-ahead logs beside a DuckDB file, whose rows are read too."""
    logs = [(ending, log) for ending in _LOGS if (log := Path(os.path.realpath(path) + ending)).exists()]
    if not logs:
        return []
    with open_file(path) as file:
        return logs if file.read(12).endswith(MAGIC) else []
