"""What a user's file may ask for. Each bound is far above honest data and far below a machine's memory.

Whatever is refused, a reader takes no more memory than a few times these: a row, a block of text (8 MiB), a batch
(64 MiB), and what a file's own format makes it decode at once (a page of Parquet: 2 GiB at the very most).
"""

from __future__ import annotations

from configs.errors import DataError
from tasks.processes.memory import available_bytes

MAX_ROW_BYTES = 4 << 20
"""A line of text, header included: 10,000 features of 20 characters take 0.2 MB."""
MAX_CELL_BYTES = 1 << 16
"""An id, class or category, a molecule's SMILES; longer ones are documents."""
MAX_COLUMNS = 1 << 17
"""Columns of a table: 4 MiB of header are two million names of one character, which are no features but a mistake."""
BLOCK_BYTES = 2 * MAX_ROW_BYTES
"""Of CSV, parsed at once: a row that does not fit is too long for sure."""
BATCH_BYTES = 64 << 20
"""Of decoded cells, handed on at once."""
MAX_WORDS_BYTES = 1 << 20
"""A small file of words, read as a whole (OGB's lists of node types and relations)."""
MAX_COUNT = 10**12
"""Nodes or edges: the largest public web graph has 3.5 thousand million nodes and 128 thousand million edges."""
MAX_GRAPHS = 1 << 27
"""Graphs of one data set (1 GiB of counts): the largest public sets of molecules are below."""


def check_memory(needed_bytes: int, what: str, path: object) -> None:
    """Raise DataError where `what` of a file does not fit into memory, before any of it is asked for."""
    if needed_bytes < BATCH_BYTES:
        return
    there = available_bytes()
    if needed_bytes > there:
        why = f"{what} takes {needed_bytes / 1e9:,.1f} GB of memory, {there / 1e9:,.1f} GB are available"
        raise DataError(why, path=path)
