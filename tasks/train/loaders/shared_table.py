"""Tables as large as the features, made once and shared by a machine's ranks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tasks.storage.artifacts import disk_errors, file_lock
from tasks.storage.file_names import file_name
from tasks.storage.graph_store import Array, create_array


def shared_table(
    scratch: Path | None, name: str, shape: tuple[int, int], dtype: Any, fill: Callable[[Array, Path], None]
) -> Array:
    """Return a table, memory-mapped read-only, that `fill` has written into the file `name` of the folder `scratch`.

    It stays there for other ranks, and for a run that is resumed; without a folder nothing stays. `name` tells all that
    decides the content. `fill` gets the table, and a folder for scratch files. Raises StageError: the disk has no room.
    """
    with nullcontext(scratch) if scratch else TemporaryDirectory() as place:
        folder = Path(place)
        path = folder / file_name(name)
        with file_lock(path.with_suffix(".lock")), disk_errors(folder):
            if not path.exists():
                draft = path.with_suffix(".part")
                fill(create_array(draft, shape, dtype), folder)
                draft.rename(path)
        table: Array = np.load(path, mmap_mode="r", allow_pickle=False)  # once mapped, it needs no name
    assert table.shape == shape
    return table
