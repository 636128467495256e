"""What all stages leave behind, and manifests of data and graphs: frozen, JSON on disk, paths inside the artifact."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict

from configs.label_types import LabelType, label_type
from tasks.storage.file_names import inner_path, joined_name
from tasks.storage.split_rows import OF_TASK, SplitRows

InnerPath = Annotated[str, AfterValidator(inner_path)]
"""Path below the artifact's own folder; a manifest with any other is damaged, or made to lead elsewhere."""

SPLITS = ("train", "valid", "test")
"""Names of the splits, in their order."""
HELD_OUT = "held_out"
"""Of the tables of a triple task's held-out edges, where triples have times: snapshots split them anew."""
NEIGHBORS = "neighbors"
"""In the report of a graph whose edges join nearest neighbours: `k`, `metric`, and how they were found."""
EDGE_LABELS = "edge_labels"
"""Edge tasks: below it lies the table of what is said of the edges of a type, in the order of their table."""
EDGE_IDS = "edge_ids"
"""The same of these edges' own ids, where they have some."""
LEFT_OUT = "left_out"
"""Name of the table of edges that are in no split: no negatives either."""


TaskKind = Literal["node", "link", "graph", "triple", "layout"]
TaskType = Literal["multiclass", "binary", "multilabel", "regression", "link", "triple", "ranking", "several", "layout"]


class Frozen(BaseModel):
    """Read, never changed; other fields than its own are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class FileEntry(Frozen):
    """One file of an artifact."""

    size: int
    """Bytes."""
    sha256: str


class Manifest(Frozen):
    """What every stage leaves behind."""

    stage: str
    stage_version: int
    key: str
    """Name of the artifact's folder: digest of stage, version, configuration and parents."""
    config: dict[str, Any]
    """The part of the recipe that the key was made of."""
    parents: dict[str, str]
    """Stage to digest of what was read."""
    files: dict[InnerPath, FileEntry]
    code_version: str = ""
    created_at: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0
    """Peak anonymous + shared memory of the stage's processes (page cache excluded: the kernel takes that back).
    Where a training's ranks were on a cluster: that of the machine that took most."""
    rows: int = 0
    """Rows, edges or seeds that the stage handled; what a table of throughput wants."""
    warnings: tuple[str, ...] = ()

    # What may differ between two runs that made the same thing; stays out of the digest.
    incidental: ClassVar[frozenset[str]] = frozenset(
        {"key", "config", "parents", "code_version", "created_at", "seconds", "peak_bytes", "warnings"}
    )

    @property
    def digest(self) -> str:
        """Digest of the content: two artifacts with one digest are interchangeable."""
        content = self.model_dump(mode="json", exclude=set(self.incidental))
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def num_bytes(self) -> int:
        """Bytes on disk."""
        return sum(entry.size for entry in self.files.values())


class Table(Frozen):
    """A sharded Parquet table."""

    num_rows: int
    columns: dict[str, str]
    """Column to Arrow type."""
    shards: tuple[InnerPath, ...]
    """Paths in order; row i of the table is row i of the shards put end to end."""
    shard_rows: tuple[int, ...]


class FeatureColumn(Frozen):
    """One input feature as it stands in a nodes or edges table."""

    column: str
    kind: Literal["numeric", "categorical", "text"]
    dim: int
    """Values a row: 1 for a scalar column and for texts, else the length of its fixed-size list."""
    cardinalities: tuple[int, ...] = ()
    """Categorical codes only: how many codes each of the `dim` values has, where known beforehand (OGB's atoms)."""
    gaps: bool = False
    """Whether NaN stands where a cell was empty: preprocess puts the training rows' mean there."""


EDGE_CATEGORIES = "edge_categories"
"""Where tables lie that say what the codes of edges' categorical columns mean."""


class NodeType(Frozen):
    """Nodes of one type; ids run from 0 to num_nodes - 1 within the type."""

    name: str
    num_nodes: int
    features: tuple[FeatureColumn, ...] = ()


class EdgeType(Frozen):
    """Edges of one (source type, relation, destination type)."""

    source: str
    relation: str
    target: str
    num_edges: int
    features: tuple[FeatureColumn, ...] = ()

    @property
    def name(self) -> str:
        """`source__relation__target`: names the table."""
        return joined_name((self.source, self.relation, self.target))


class RankingTask(Frozen):
    """Rows of which type are ranked for each labelled node, and what they are ranked by.

    Labelled nodes are tasks, and lead to what is right by edges of the relation `links`, which carry no messages.
    """

    candidates: str
    """Node type of what is ranked."""
    history: str
    """The edge type that says what entities were linked to, and when."""
    history_is_reversed: bool = False
    """Whether its edges lead from candidates to entities."""
    horizon: int
    """How far from its moment a task looks, in the unit of times."""
    new_only: bool = False
    """Whether what an entity was linked to before the moment is no candidate."""
    together: bool = False
    """Whether entities are of the candidates' type, linked to what they are had together with: history joins these to
    what they are had in."""


class TaskHead(Frozen):
    """One of several tasks of the same rows."""

    name: str
    task_type: TaskType
    num_classes: int = 0
    num_tasks: int = 1
    """Columns of its label."""
    metric: str
    """What it is judged by."""
    weight: float = 1.0
    """Of its mean loss in the sum of all tasks'."""

    @property
    def label_type(self) -> LabelType:
        """Of its label."""
        return label_type(self.task_type)


class TaskManifest(Manifest):
    """What is predicted, and on what: the same for a data set and the graphs made of it."""

    dataset: str
    """Registered name or OGB name, for people."""
    task: str
    """What is scored: `node`, `link`, `graph`, `triple`, `layout`, or what `tasks.kinds` has besides."""
    task_type: TaskType
    num_classes: int = 0
    """Classes of a multiclass label (2 for binary); 0 for regression and links."""
    num_tasks: int = 1
    """Columns of the label."""
    metric: str
    """What the data set is judged by: accuracy, rocauc, rmse, mrr, hits@20, ..."""
    ogb_name: str | None = None
    """Set where OGB's own evaluator applies."""
    target_type: str
    """Node type that carries labels (node tasks)."""
    num_graphs: int = 1
    splits: dict[str, int]
    """Split to number of nodes, edges, graphs or triples in it."""
    num_relations: int = 0
    """Relations that triples have (triple tasks), or that links are predicted in, where there are several of them and
    pairs say which (link tasks); relation i is that of `edge_types[i]` then."""
    keep_known_pairs: bool = False
    """Link tasks: whether held-out pairs that stand among other edges too stay there; edge tasks: whether edges that
    are scored carry messages."""
    ordered_ends: bool = True
    """Edge tasks: whether an edge and its reverse are two."""
    negative_kinds: tuple[str, ...] = ()
    """Link tasks of events: kinds of the negatives of each edge, as many of one as of another, kind by kind."""
    num_candidates: int = 0
    """Link tasks: targets that each held-out edge is ranked among where none are given; 0: one pool for all."""
    ranks_targets: bool = False
    """Link tasks: whether all targets are ranked for each source of a split, in place of pairs against negatives."""
    has_context: bool = False
    """Link tasks: whether links are those of the first of `edge_types` alone, and the others are context, whose edges
    carry messages also between the ends of what is predicted."""
    relation_feature_dim: int = 0
    """Columns of relations' features."""
    fit_before: int | None = None
    """Time of the first moment that validates, where nodes are predicted at moments: preprocess fits on the rows of all
    types that are older, and what has no time was always there. None: on the training rows."""
    time_unit: str = ""
    """What times count, where nodes are predicted at moments: `seconds`, or `number` of something."""
    ranking: RankingTask | None = None
    """What is ranked (task type ranking)."""
    heads: tuple[TaskHead, ...] = ()
    """Several tasks (task type several): their labels stand side by side, classes as numbers, NaN for none. The first
    one judges the model."""

    @property
    def kind(self) -> str:
        """Name of the kind of task (`tasks.kinds`): `task`, unless there are several or candidates are ranked."""
        return "several" if self.heads else "ranking" if self.ranking is not None else self._kind_of_task

    @property
    def _kind_of_task(self) -> str:
        return "recommendation" if self.ranks_targets else self.task

    @property
    def split_rows(self) -> SplitRows:
        """What the rows of splits are."""
        return OF_TASK.get(self.task, OF_TASK["node"])

    @property
    def label_type(self) -> LabelType:
        """Of the label; of several tasks, pairs and rankings one that has neither classes nor numbers."""
        return label_type(self.task_type)

    def own_fields(self, kind: type[TaskManifest]) -> dict[str, Any]:
        """Return what manifests of a kind say beyond what every stage leaves behind, for the next stage's manifest."""
        return {name: getattr(self, name) for name in kind.model_fields if name not in Manifest.model_fields}


class DatasetManifest(TaskManifest):
    """Parquet shards of a data set. `tasks/ingest/README.md` documents the tables."""

    directed: bool
    """Whether the edges as stored mean one direction only."""
    node_types: tuple[NodeType, ...]
    edge_types: tuple[EdgeType, ...]
    num_self_loops: int = 0
    num_duplicate_edges: int = -1
    """Exact repetitions of (source, target); -1 where not counted."""
    foreign_keys: tuple[str, ...] = ()
    """Those of `edge_types`, by name, whose edges lead from a row to what a foreign key of its own names."""
    adjusted: dict[str, int] = {}
    """Rows of users' tables that a policy dropped, added or filled: `FILES: what` to their number."""
    tables: dict[str, Table]
    """`nodes/TYPE`, `edges/TYPE`, `ids/TYPE`, `graphs`, `relations`, `split/train`, `split/valid`, `split/test`,
    `edge_labels/TYPE` and `edge_ids/TYPE` (edge tasks), `split/valid_negative`, `split/test_negative`,
    `split/left_out` (edges of no split), `held_out/TYPE` (a triple task's edges of validation and test)."""

    @property
    def num_nodes(self) -> int:
        """Nodes of all types."""
        return sum(node_type.num_nodes for node_type in self.node_types)

    @property
    def labelled_edges(self) -> EdgeType:
        """The edges that have labels, of an edge task."""
        return next(one for one in self.edge_types if f"{EDGE_LABELS}/{one.name}" in self.tables)

    @property
    def num_edges(self) -> int:
        """Edges of all types, as stored."""
        return sum(edge_type.num_edges for edge_type in self.edge_types)


class ArrayEntry(Frozen):
    """A `.npy` file of a graph."""

    path: InnerPath
    dtype: str
    shape: tuple[int, ...]


class TypeColumns(Frozen):
    """Which columns of the matrices that all types share a type has."""

    numeric: tuple[int, ...] = ()
    """Of `feat`, or `edge_feat`."""
    categorical: tuple[int, ...] = ()
    """Of `feat_cat`, or `edge_feat_cat`."""


class GraphManifest(TaskManifest):
    """A graph in memory-mapped arrays. `tasks/storage/graph_store.py` names and explains the arrays."""

    num_nodes: int
    num_edges: int
    """Edges as message passing sees them (after symmetrising and merging)."""
    symmetric: bool
    """Whether every edge has its reverse: then CSR and CSC are the same arrays."""
    node_types: tuple[str, ...]
    edge_types: tuple[str, ...]
    type_offsets: tuple[int, ...]
    """In the id space of preprocess, type t holds ids type_offsets[t] to type_offsets[t + 1]."""
    feature_dim: int
    """Columns of `feat`; 0 where nodes have no numeric features."""
    categories: tuple[int, ...] = ()
    """Cardinality of each column of `feat_cat`."""
    edge_feature_dim: int = 0
    edge_categories: tuple[int, ...] = ()
    relation_ends: tuple[tuple[int, int], ...] = ()
    """For each of `edge_types`: numbers of its source's and its target's type. None where there is one type of nodes
    and of edges, or where added self-loops join any type to itself."""
    own_keys: tuple[int, ...] = ()
    """Numbers of those of `edge_types` whose edges lead to a row from what a foreign key of its own names."""
    type_columns: dict[str, TypeColumns] = {}
    """Node type to its own columns; none: every type has all of them."""
    relation_columns: dict[str, TypeColumns] = {}
    """Edge type to its own columns; none: every relation has all of them."""
    arrays: dict[str, ArrayEntry]
    report: dict[str, Any] = {}
    """Facts for people: degree histogram, component sizes, what was dropped, fitted transforms."""


class PartitionManifest(GraphManifest):
    """The same graph, reordered so that part p holds nodes part_offsets[p] to part_offsets[p + 1]."""

    partitioner: str
    num_parts: int
    part_offsets: tuple[int, ...]
    edge_cut: float
    """Share of edges whose ends lie in two parts."""
    node_balance: float
    """Largest part over the mean part, in nodes."""
    train_balance: float
    """The same in training nodes."""

    def rank_bounds(self, world_size: int) -> tuple[int, ...]:
        """Return the first node of each rank's parts, and the end: (world_size + 1,). Ranks have equally many parts."""
        assert self.num_parts % world_size == 0, "ranks have equally many parts"
        return self.part_offsets[:: self.num_parts // world_size]


_OF_TYPE = ("feat of ", "feat_cat of ")


def array_of_type(name: str, kind: str) -> str:
    """Return the name of a type's own array: row i is of the type's i-th node in preprocess's id space (`node_ids`)."""
    return f"{name} of {kind}"


def is_of_type(name: str) -> bool:
    """Whether an array is a type's own: it does not follow the nodes where these are numbered anew."""
    return name.startswith(_OF_TYPE)
