"""What flows between stages: frozen manifests, JSON on disk, paths relative to the artifact's own folder."""

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
LEFT_OUT = "left_out"
"""Name of the table of edges that are in no split: no negatives either."""


TaskKind = Literal["node", "link", "graph", "triple", "layout"]
TaskType = Literal["multiclass", "binary", "multilabel", "regression", "link", "triple", "ranking", "several", "layout"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileEntry(_Frozen):
    """One file of an artifact."""

    size: int
    """Bytes."""
    sha256: str


class Manifest(_Frozen):
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
    """Peak anonymous + shared memory of the stage's processes (page cache excluded: the kernel takes that back)."""
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


class Table(_Frozen):
    """A sharded Parquet table."""

    num_rows: int
    columns: dict[str, str]
    """Column to Arrow type."""
    shards: tuple[InnerPath, ...]
    """Paths in order; row i of the table is row i of the shards put end to end."""
    shard_rows: tuple[int, ...]


class FeatureColumn(_Frozen):
    """One input feature as it stands in a nodes or edges table."""

    column: str
    kind: Literal["numeric", "categorical"]
    dim: int
    """Values a row: 1 for a scalar column, else the length of its fixed-size list."""
    cardinalities: tuple[int, ...] = ()
    """Categorical codes only: how many codes each of the `dim` values has, where known beforehand (OGB's atoms)."""
    gaps: bool = False
    """Whether NaN stands where a cell was empty: preprocess puts the training rows' mean there."""


EDGE_CATEGORIES = "edge_categories"
"""Where tables lie that say what the codes of edges' categorical columns mean."""


class NodeType(_Frozen):
    """Nodes of one type; ids run from 0 to num_nodes - 1 within the type."""

    name: str
    num_nodes: int
    features: tuple[FeatureColumn, ...] = ()


class EdgeType(_Frozen):
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


class RankingTask(_Frozen):
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


class TaskHead(_Frozen):
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
    """Link tasks: whether held-out pairs that stand among other edges too stay there."""
    negative_kinds: tuple[str, ...] = ()
    """Link tasks of events: kinds of the negatives of each edge, as many of one as of another, kind by kind."""
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
        return "several" if self.heads else "ranking" if self.ranking is not None else self.task

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
    `split/valid_negative`, `split/test_negative`, `split/left_out` (edges of no split), `held_out/TYPE` (a
    triple task's edges of validation and test)."""

    @property
    def num_nodes(self) -> int:
        """Nodes of all types."""
        return sum(node_type.num_nodes for node_type in self.node_types)

    @property
    def num_edges(self) -> int:
        """Edges of all types, as stored."""
        return sum(edge_type.num_edges for edge_type in self.edge_types)


class ArrayEntry(_Frozen):
    """A `.npy` file of a graph."""

    path: InnerPath
    dtype: str
    shape: tuple[int, ...]


class TypeColumns(_Frozen):
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


VECTORS = "vectors"
"""Stage of `VectorsManifest`: no stage of a run, but its artifacts are made, found and cleaned as those are."""


class VectorTable(_Frozen):
    """The vectors of one node type: a Parquet file as `graphmill export embeddings` writes it."""

    kind: str
    """The node type."""
    file: InnerPath
    num_rows: int
    own_ids: bool
    """Whether its ids are the users' own; else they are numbers, which mean nothing in another graph."""


class VectorsManifest(Manifest):
    """Vectors of a registered model's nodes, as features of other recipes, and what its training saw."""

    recipe: str
    """Name of the recipe that the model was trained by."""
    structure: str
    """What names the numbering of its nodes (`tasks.storage.ids.structure_digest`)."""
    node_tables: tuple[VectorTable, ...]
    """All tables' rows end to end are the rows that the arrays below name."""
    dim: int
    mean_square: float
    """Mean of the squares of all numbers."""
    as_of: str | None
    """Moment of the data; None: of all times."""
    directed: bool
    """Whether an edge and its reverse are two."""
    edges: InnerPath
    """`.npy`, id (E, 2): the edges that carried messages or trained, by their ends' rows."""
    trained: InnerPath
    """`.npy`, id (n,): rows of nodes whose labels the vectors learnt from; none where no label was read."""
    chosen: InnerPath
    """`.npy`, id (n,): rows of nodes whose labels chose the checkpoint."""
    sources: dict[str, str] = {}
    """Models whose vectors were its own features: `NAME@VERSION` to key."""


LAYERS = "layers"
"""Stage of `LayersManifest`: no stage of a run either."""


class LayersManifest(Manifest):
    """All layers' outputs of one graph by one registered model; predictions for a newer graph take what is the same."""

    model_name: str
    """`NAME@VERSION` that computed them."""
    ingest: str
    """Key of the data's artifact."""
    partition: str
    """Key of the graph's artifact."""
    as_of: str | None
    num_nodes: int
    computed: tuple[int, ...]
    """Rows of each layer that were computed; the others were taken from the graph before."""
    full_seconds: float
    """What the newest pass took in which all rows were computed."""
    full_nodes: int
    """Nodes that it went through."""


class RunResult(Manifest):
    """A trained model."""

    model: dict[str, Any]
    seed: int
    world_size: int
    threads: int = 0
    """CPU threads of each rank; 0: made before that was noted."""
    strategy: str
    best_epoch: int
    best_metric: float
    """Validation metric at the best epoch (higher is better: errors are negated)."""
    epochs_run: int
    num_parameters: int
    seeds_per_second: float
    edges_per_second: float
    best_checkpoint: InnerPath
    last_checkpoint: InnerPath
    metrics_file: InnerPath
    """JSON lines, one a step or epoch: {"step", "epoch", "seconds", metric: value, ...}."""
    resumed_from_epoch: int = 0
    restarts: int = 0
    warm_start: dict[str, Any] | None = None
    """Earlier snapshot whose weights it began with: `as_of`, `key` of that training, `used`, else `why_not`."""

    incidental: ClassVar[frozenset[str]] = Manifest.incidental | {
        "warm_start",
        "seeds_per_second",
        "edges_per_second",
        "resumed_from_epoch",
        "restarts",
    }


_ROW_UNITS = {"components": "directed edges", "partition": "directed edges", "train": "samples", "evaluate": "scored"}


def is_at_once(manifest: Manifest) -> bool:
    """Whether it is of a training that computes its vectors at once: without epochs, strategy or samples."""
    return isinstance(manifest, RunResult) and not manifest.strategy


def rows_text(stage: str, rows: int, *, at_once: bool) -> str:
    """Return how many rows a stage went through, and what they are, empty for none; `at_once`: see `is_at_once`."""
    unit = "nodes" if stage == "train" and at_once else _ROW_UNITS.get(stage, "rows")
    return f"{rows:,} {unit}" if rows else ""


class EvalReport(Manifest):
    """Metrics of the best checkpoint."""

    evaluator: str
    metric: str
    metrics: dict[str, dict[str, float]]
    """Split to metric to value, as the field prints it (RMSE positive, accuracy in 0..1)."""
    controls: dict[str, dict[str, dict[str, float]]] = {}
    """Control to split to metric to value, on the same rows: what the model has to beat. `tasks/controls`
    says which there are."""
    predictions: InnerPath | None = None
    """Parquet under the users' own ids."""
    layout: InnerPath | None = None
    """Points of a layout, as Parquet under the users' own ids; `tasks/kinds/points/points_file.py`."""
    report: dict[str, Any] = {}
    """Confusion matrix, ranking histogram: what the report draws."""


class GateRecord(BaseModel):
    """What the gate decided on a model version, and by what: for the report, MLflow, and whoever is told."""

    model_config = ConfigDict(frozen=True)

    promoted: bool = False
    reason: str = ""
    short: str = ""
    """The same in a few words."""
    loud: bool = False
    """Whether somebody should look at it."""
    left_alone: bool = False
    """Whether the run was not asked to choose a champion."""
    metric: str = ""
    """`split/metric`."""
    higher_is_better: bool = True
    value: float | None = None
    """The version's own, as evaluated; None: not a number."""
    controls: dict[str, float] = {}
    """Control to its value of the same metric."""
    control: str = ""
    """The control that was published in place of the model."""
    data: str = ""
    """Which data, for people."""
    against: str | None = None
    """Version of the champion that there was; None: there was no other."""
    drift: dict[str, Any] | None = None
    """How this data differs from the champion's (`publish.profile.compare`); None where nobody knows."""
    challenger: float | None = None
    champion: float | None = None
    """What both have on the same `rows`; None: they were not compared."""
    rows: int | None = None
    recorded: bool = False
    """Whether both values are those of the evaluations."""
    trained_on: int | None = None
    """Validation rows that the champion was trained on; None: not known."""
    why_not: str = ""
    """Why the champion could not score the data."""


class PublishManifest(Manifest):
    """Where the outcome can be looked at."""

    mlflow_run_id: str
    mlflow_run_url: str
    model_name: str
    model_version: str
    champion: bool
    """Whether this version became (or stayed) the champion."""
    gate: GateRecord
    report_file: InnerPath
    maps: tuple[InnerPath, ...] = ()
    """Where there is a layout: `map.html`, the page, and the same as pictures."""
