"""The splits of graphs that DGL or PyG saved: masks of nodes, of graphs or of edges, and pairs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import DataError
from tasks.arrays import Array
from tasks.ingest.dgl.configs import GraphFileConfig
from tasks.ingest.dgl.fields import as_matrix, as_whole_numbers, place_of
from tasks.ingest.labels import check_labelled, has_label
from tasks.ingest.writer import DatasetWriter
from tasks.readers.dgl_file import SavedGraph
from tasks.storage.graph_store import id_dtype
from tasks.storage.manifests import SPLITS


class DglSplits:
    """Writes the splits of one file."""

    def __init__(
        self, config: GraphFileConfig, path: Path, graph: SavedGraph, labels: Mapping[str, Array], writer: DatasetWriter
    ) -> None:
        self.config, self.path, self.graph, self.labels, self.writer = config, path, graph, labels, writer

    def place(self, owner: str, name: str) -> str:
        """Name an array for messages."""
        return place_of(self.path, owner, name)

    def of_rows(self, data: Mapping[str, Array], owner: str, what: str, label: Array) -> None:
        """Write the splits of nodes or graphs."""
        labelled = has_label(label)
        taken = np.zeros(len(label), bool)
        for split in SPLITS:
            name = getattr(self.config, split)
            place = self.place(owner, name)
            mask = self.mask(data, name, place, split, len(label))
            ids = np.flatnonzero(mask)
            both = np.flatnonzero(mask & taken)
            if len(both):
                raise DataError(f"{what} {both[0]} is in an earlier split too; splits overlap", path=place)
            if not len(ids):
                raise DataError(f"the {split} split is empty", path=place)
            taken |= mask
            check_labelled(labelled, ids, split, what, place)
            self.writer.write(f"split/{split}", {f"{what}_id": ids})

    def mask(self, data: Mapping[str, Array], name: str, place: str, split: str, count: int) -> Array:
        """Return a mask, bool (count,)."""
        if name not in data:
            raise DataError(
                f"there is no such mask; save one, boolean with {count:,} rows, or name it: dataset.{split}", path=place
            )
        mask = as_matrix(data[name], place)
        if mask.shape != (count, 1):
            raise DataError(f"is no mask of {count:,} rows: its shape is {data[name].shape}", path=place)
        wrong = np.flatnonzero(~np.isin(mask[:, 0], (0, 1)))
        if len(wrong):
            value = mask[wrong[0], 0]
            raise DataError(f"is no mask: it holds {value}; 0 and 1 are needed, or booleans", path=place, row=wrong[0])
        return mask[:, 0].astype(bool)

    def of_pairs(self) -> None:
        """Write the pairs of a link task's splits, and given negatives."""
        if len(self.graph.num_nodes) != 1 or len(self.graph.edges) != 1:
            raise DataError(
                "has several types of nodes or edges; link tasks read graphs with one of each", path=self.path
            )
        pairs = {split: self.pairs(split) for split in SPLITS}
        for split, ends in pairs.items():
            self.writer.write(f"split/{split}", {"src": ends[:, 0], "dst": ends[:, 1]})
        for split in SPLITS[1:]:
            if f"{split}_negative" in self.labels:
                self.writer.write(f"split/{split}_negative", self.negatives(split, len(pairs[split])))

    def pairs(self, split: str) -> Array:
        """Return the positive pairs of a link task's split, (n, 2)."""
        [count], [(src, dst)] = self.graph.num_nodes.values(), self.graph.edges.values()
        [edata] = self.graph.edata.values()
        name = getattr(self.config, split)
        stored = f"{split}_edges" if name not in edata and name not in self.labels else name
        if stored in self.labels:
            found = self.ends(stored, count)
        else:
            rows = self.mask(edata, name, self.place(self.config.edge_word, name), split, len(src))
            found = np.stack([src[rows], dst[rows]], 1)
        if not len(found):
            raise DataError(f"the {split} split is empty", path=self.place(f"labels or {self.config.edge_word}", name))
        return found

    def negatives(self, split: str, positives: int) -> dict[str, Any]:
        """Return given negatives: one pool, or candidates for each positive edge."""
        [count] = self.graph.num_nodes.values()
        found = self.ends(f"{split}_negative", count)
        if not found.size:
            raise DataError(
                "holds no pairs; leave it out, and pairs are drawn", path=self.place("labels", f"{split}_negative")
            )
        if found.ndim == 2:
            return {"src": found[:, 0], "dst": found[:, 1]}
        if len(found) != positives or (found[..., 0] != found[:, :1, 0]).any():
            raise DataError(
                f"has the shape {found.shape}; a row of candidates with one source is needed for each of the "
                f"{positives:,} positive pairs",
                path=self.place("labels", f"{split}_negative"),
            )
        return {"src": found[:, 0, 0], "dst": np.ascontiguousarray(found[..., 1])}

    def ends(self, name: str, count: int) -> Array:
        """Return pairs of nodes from the labels, (n, 2) or (n, K, 2)."""
        array, place = self.labels[name], self.place("labels", name)
        if array.ndim not in (2, 3) or array.shape[-1] != 2:
            raise DataError(f"has the shape {array.shape}; pairs are needed, (n, 2)", path=place)
        array = as_whole_numbers(array, place)
        wrong = np.argwhere((array < 0) | (array >= count))
        if len(wrong):
            value = array[tuple(wrong[0])]
            raise DataError(f"node id {value} is not in 0..{count - 1}", path=place, row=int(wrong[0][0]))
        return array.astype(id_dtype(count))
