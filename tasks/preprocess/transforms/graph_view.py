"""The graph that preprocess has just built, as transforms of structure see it: paths, opened where they are needed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tasks.arrays import Array
from tasks.storage.artifacts import file_digest
from tasks.storage.graph_store import open_array
from tasks.storage.manifests import ArrayEntry

_STRUCTURE = ("csc_indptr", "csc_indices", "csr_indptr", "csr_indices", "edge_feat", "edge_weight", "graph_offsets")


@dataclass(frozen=True)
class GraphView:
    """Arrays of a graph in the making; picklable."""

    folder: str
    entries: dict[str, ArrayEntry]
    num_nodes: int
    symmetric: bool
    dataset: str = ""
    """Folder of the ingest artifact: ids of nodes."""
    home: str = ""
    """Root of the home: artifacts that transforms name."""

    def get(self, name: str) -> Array | None:
        """Return an array, memory-mapped, or None."""
        if self.symmetric and name in ("csr_indptr", "csr_indices"):
            name = name.replace("csr", "csc")
        entry = self.entries.get(name)
        return None if entry is None else open_array(Path(self.folder) / entry.path, entry)

    def __getitem__(self, name: str) -> Array:
        """Return an array, memory-mapped."""
        array = self.get(name)
        assert array is not None, name
        return array

    @cached_property
    def digests(self) -> dict[str, Any]:
        """Digests of the arrays that a transform of structure may read."""
        return {name: self.digest(name) for name in _STRUCTURE if name in self.entries}

    def digest(self, name: str) -> str:
        """Return the digest of an array's file."""
        return file_digest(Path(self.folder) / self.entries[name].path)
