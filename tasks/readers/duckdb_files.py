"""What DuckDB keeps a database in: a file, and its write-ahead log beside."""

from __future__ import annotations

import os
from pathlib import Path

from configs.source_files import open_file

MAGIC = b"DUCK"
"""Bytes 8 to 11 of every file."""


def log_of(path: Path) -> Path | None:
    """Return the write-ahead log beside a DuckDB file, whose rows are read too; None where there is none."""
    log = Path(os.path.realpath(path) + ".wal")
    if not log.exists():
        return None
    with open_file(path) as file:
        return log if file.read(12).endswith(MAGIC) else None
