"""The splits of graphs that DGL or PyG saved: masks of nodes, of graphs or of edges, and pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from configs.errors import DataError
from tasks.arrays import Array
from tasks.ingest.dgl.fields import GraphSource, as_matrix, as_whole_numbers
from tasks.ingest.labels import has_label
from tasks.ingest.splits import write_row_splits
from tasks.ingest.writer import DatasetWriter
from tasks.storage.graph_store import id_dtype
from tasks.storage.manifests import SPLITS


class GraphSplits:
    """Writes the splits of one file."""

    def __init__(self, source: GraphSource, writer: DatasetWriter) -> None:
        self.source, self.writer = source, writer
        self.config, self.graph, self.labels = source.config, source.graph, source.labels

    def of_rows(self, data: Mapping[str, Array], owner: str, what: str, label: Array) -> None:
        """Write the splits of nodes or graphs."""
        ids = []
        for split in SPLITS:
            name = getattr(self.config, split)
            place = self.source.place(owner, name)
            ids.append((np.flatnonzero(self.mask(data, name, place, split, len(label))), place))
        write_row_splits(self.writer, ids, has_label(label), what)

    def mask(self, data: Mapping[str, Array], name: str, place: str, split: str, count: int) -> Array:
        """Return a mask, bool (count,)."""
        if name not in data:
            why = f"there is no such mask; save one, boolean with {count:,} rows, or name it: dataset.{split}"
            raise DataError(why, path=place)
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
            why = "has several types of nodes or edges; link tasks read graphs with one of each"
            raise DataError(why, path=self.source.path)
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
            ends = self.ends(stored, count)
        else:
            rows = self.mask(edata, name, self.source.place(self.config.edge_word, name), split, len(src))
            ends = np.stack([src[rows], dst[rows]], 1)
        if not len(ends):
            why = f"the {split} split is empty"
            raise DataError(why, path=self.source.place(f"labels or {self.config.edge_word}", name))
        return ends

    def negatives(self, split: str, positives: int) -> dict[str, Any]:
        """Return given negatives: one pool, or candidates for each positive edge."""
        [count] = self.graph.num_nodes.values()
        pairs, place = self.ends(f"{split}_negative", count), self.source.place("labels", f"{split}_negative")
        if not pairs.size:
            raise DataError("holds no pairs; leave it out, and pairs are drawn", path=place)
        if pairs.ndim == 2:
            return {"src": pairs[:, 0], "dst": pairs[:, 1]}
        if len(pairs) != positives or (pairs[..., 0] != pairs[:, :1, 0]).any():
            raise DataError(
                f"has the shape {pairs.shape}; a row of candidates with one source is needed for each of the "
                f"{positives:,} positive pairs",
                path=place,
            )
        return {"src": pairs[:, 0, 0], "dst": np.ascontiguousarray(pairs[..., 1])}

    def ends(self, name: str, count: int) -> Array:
        """Return pairs of nodes from the labels, (n, 2) or (n, K, 2)."""
        array, place = self.labels[name], self.source.place("labels", name)
        if array.ndim not in (2, 3) or array.shape[-1] != 2:
            raise DataError(f"has the shape {array.shape}; pairs are needed, (n, 2)", path=place)
        array = as_whole_numbers(array, place)
        wrong = np.argwhere((array < 0) | (array >= count))
        if len(wrong):
            value = array[tuple(wrong[0])]
            raise DataError(f"node id {value} is not in 0..{count - 1}", path=place, row=int(wrong[0][0]))
        return array.astype(id_dtype(count))
