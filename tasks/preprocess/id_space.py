"""One id space for all node types, and what the columns of all types add up to.

Types lie end to end in the manifest's order: node v of type t is node type_offsets[t] + v of the graph. Relations
become numbers (`edge_type`). When the graph is symmetrised, the reverse of a relation within one type counts as that
relation, but in databases (`IdSpace.has_reverse`); the reverse of `author__writes__paper` is a relation of its own,
`paper__rev_writes__author`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs.errors import DataError
from tasks.arrays import offsets
from tasks.storage.graph_store import id_dtype
from tasks.storage.manifests import DatasetManifest, EdgeType, FeatureColumn, NodeType

LOOP_TYPE = "self_loop"


@dataclass(frozen=True)
class IdSpace:
    """Ids and types of the graph to be made."""

    manifest: DatasetManifest
    symmetrize: bool
    add_loops: bool

    @cached_property
    def type_offsets(self) -> tuple[int, ...]:
        """First id of each node type, and the number of nodes."""
        return tuple(offsets([node_type.num_nodes for node_type in self.manifest.node_types]).tolist())

    @property
    def num_nodes(self) -> int:
        """Nodes of all types."""
        return self.type_offsets[-1]

    @property
    def id_type(self) -> Any:
        """Dtype of ids on disk."""
        return id_dtype(self.num_nodes)

    @property
    def node_types(self) -> tuple[str, ...]:
        """Names of node types."""
        return tuple(node_type.name for node_type in self.manifest.node_types)

    def type_index(self, name: str) -> int:
        """Number of a node type. Raises DataError."""
        if name not in self.node_types:
            raise DataError(f"there is no node type {name!r}; the data set has {', '.join(self.node_types)}")
        return self.node_types.index(name)

    def offset(self, name: str) -> int:
        """First id of a node type."""
        return self.type_offsets[self.type_index(name)]

    @cached_property
    def edge_types(self) -> tuple[str, ...]:
        """Names of relations: those of the tables, then reverses, then added self-loops."""
        names = [edge_type.name for edge_type in self.manifest.edge_types]
        if self.symmetrize:
            names += [_reverse_name(t) for t in self.manifest.edge_types if self.has_reverse(t)]
        if self.add_loops and len(names) > 1:
            names.append(LOOP_TYPE)
        return tuple(names)

    @cached_property
    def relation_ends(self) -> tuple[tuple[int, int], ...]:
        """Numbers of the source's and the target's type of each relation.

        None where there is one type of either kind, or added loops join any type to itself.
        """
        if len(self.edge_types) == len(self.node_types) == 1 or LOOP_TYPE in self.edge_types:
            return ()
        ends = [(self.type_index(t.source), self.type_index(t.target)) for t in self.manifest.edge_types]
        if self.symmetrize:
            ends += [(ends[i][1], ends[i][0]) for i, t in enumerate(self.manifest.edge_types) if self.has_reverse(t)]
        return tuple(ends)

    @cached_property
    def own_keys(self) -> tuple[int, ...]:
        """Numbers of the relations that lead to a row from what a foreign key of its own names."""
        types = self.manifest.edge_types if self.symmetrize else ()
        keys = [t for t in types if t.name in self.manifest.foreign_keys and self.has_reverse(t)]
        return tuple(self.edge_types.index(_reverse_name(t)) for t in keys)

    def reverse_type(self, index: int) -> int:
        """Number of the relation that the reverse edges of table `index` have."""
        edge_type = self.manifest.edge_types[index]
        return self.edge_types.index(_reverse_name(edge_type)) if self.has_reverse(edge_type) else index

    def has_reverse(self, edge_type: EdgeType) -> bool:
        """Whether the reverse of a relation is a relation of its own.

        It is where its ends are of two types, and in databases: to whom a row answers is not who answers to it.
        """
        return edge_type.source != edge_type.target or self.manifest.fit_before is not None

    @cached_property
    def table_starts(self) -> NDArray[np.int64]:
        """First edge number of each edge table in the numbering over all tables, and the number of edges."""
        return offsets([edge_type.num_edges for edge_type in self.manifest.edge_types])

    @cached_property
    def edge_columns(self) -> frozenset[str]:
        """Columns that edges carry, besides their ends."""
        tables = [self.manifest.tables[f"edges/{edge_type.name}"] for edge_type in self.manifest.edge_types]
        return frozenset(column for table in tables for column in table.columns) - {"src", "dst"}

    @property
    def carries_data(self) -> bool:
        """Whether an edge is more than its two ends."""
        return len(self.edge_types) > 1 or bool(self.edge_columns)


def _reverse_name(edge_type: EdgeType) -> str:
    return f"{edge_type.target}__rev_{edge_type.relation}__{edge_type.source}"


def union_of_features(types: tuple[NodeType, ...] | tuple[EdgeType, ...]) -> tuple[FeatureColumn, ...]:
    """Return the feature columns of all types, in the order in which they first occur; equal names are one column.

    Raises:
        DataError: two types have a column of one name but of different kinds, widths or cardinalities.
    """
    by_column: dict[str, tuple[FeatureColumn, str]] = {}
    for one_type in types:
        for feature in one_type.features:
            first, owner = by_column.setdefault(feature.column, (feature, one_type.name))
            if (first.kind, first.dim, first.cardinalities) != (feature.kind, feature.dim, feature.cardinalities):
                raise DataError(
                    f"feature {feature.column!r} is {_describe(first)} on {owner} but {_describe(feature)} on "
                    f"{one_type.name}; all types share one feature matrix, so give the columns different names"
                )
            if feature.gaps:
                by_column[feature.column] = (first.model_copy(update={"gaps": True}), owner)
    return tuple(feature for feature, _ in by_column.values())


def _describe(feature: FeatureColumn) -> str:
    codes = f" with {', '.join(map(str, feature.cardinalities))} codes" if feature.cardinalities else ""
    return f"{feature.kind} of width {feature.dim}{codes}"
