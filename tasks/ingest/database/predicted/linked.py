"""Links between entities and rows of another table, and those that are to be predicted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tasks.arrays import Array
from tasks.ingest.database.predicted.link_paths import LinkPath


class Links(NamedTuple):
    """All links there are, oldest first."""

    path: LinkPath
    entity: Array
    """int64 (n,): dense ids."""
    target: Array
    """int64 (n,): dense ids of the other table's rows."""
    time: Array
    """int64 (n,): when the rows that make it up were all there."""

    def between(self, start: int, end: int) -> slice:
        """Return those of start <= time < end."""
        first, last = np.searchsorted(self.time, [start, end])
        return slice(int(first), int(last))


class PositiveLinks(NamedTuple):
    """What entities are linked to within their horizons."""

    all: Links
    """All links of all times."""
    task: Array
    """int64 (m,), ascending: the task's row."""
    target: Array
    """int64 (m,): dense id of what its entity is linked to, each once."""
    without: int
    """Entities at moments that are left out, without any link."""
