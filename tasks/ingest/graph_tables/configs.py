"""Users' own tables: Parquet, CSV, TSV and edge lists."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from configs.base import ComponentConfig, ConfigModel, StrTuple
from configs.layout_options import LAYOUT
from configs.matching import did_you_mean
from configs.metric_names import MetricName
from configs.registry import DATASETS
from configs.values.versioned_tables import NO_VERSIONS, as_of, open_references
from tasks.ingest.configs import ScoredEdges, check_scored_edges
from tasks.ingest.tables.policies import Column
from tasks.ingest.tables.table_configs import EdgeTableConfig, LabelFilesConfig, NodeTableConfig
from tasks.storage.manifests import SPLITS

NEGATIVE_KINDS = ("random", "historical", "inductive")
"""Of events (Poursafaei and others, NeurIPS 2022, arXiv:2207.10128)."""

OF_LINKS = {
    **dict.fromkeys(("source", "target", "relation_column", "label"), ("files",)),
    "known_pairs": ("files", "time"),
    **dict.fromkeys(("negatives", "per_edge"), ("time",)),
}
"""Options of links, and which kinds of splits they are for."""


class SplitConfig(ConfigModel):
    """Which nodes (or edges) train, validate and test."""

    runtime_fields: ClassVar[frozenset[str]] = frozenset({"files"})

    by: Literal["ratio", "stratified", "time", "column", "files", "none"] = "ratio"
    """ratio: at random; stratified: the same shares of each class; time: oldest train, newest test; column or files:
    as you say. Only labelled nodes are dealt out. none: nothing trains, of data for predictions alone; labels may be
    missing."""
    train: float = Field(default=0.6, ge=0, le=1)
    """Share of the training split (ratio, stratified, time)."""
    valid: float = Field(default=0.2, ge=0, le=1)
    """Share of the validation split."""
    test: float = Field(default=0.2, ge=0, le=1)
    """Share of the test split."""
    seed: int = Field(default=0, ge=0)
    """Seed of the random ones."""
    column: Column | None = None
    """by column: its cells are train, valid (or val, validation), test, or empty: of no split. Edges of no split (link
    tasks) neither train nor carry messages, and no edge that is held out is ranked against them."""
    files: dict[str, str] = Field(default={})
    """by files: train, valid and test, each a file of ids (link tasks: valid and test, each a file of pairs, which
    neither train nor carry messages, whether or not they stand in the edge table too)."""
    header: bool = False
    """Whether the split's CSV files begin with a line of names."""
    id: Column | None = None
    """Files of ids: their column, by name or place; null: the first one."""
    source: Column | None = None
    """Files of pairs: column of the source, by name or place; null: the first one, or where the other columns are named
    what it is called in the edge table."""
    target: Column | None = None
    """Files of pairs: column of the target; null: the second one, or as in the edge table."""
    relation_column: Column | None = None
    """Files of pairs: column of the relation that a pair is asked about, where edges have several."""
    label: Column | None = None
    """Files of pairs: column of 1 for edges and 0 for negatives, which then are given; null: all are edges, and
    negatives are drawn."""
    known_pairs: Literal["take_out", "keep"] = "take_out"
    """Link tasks by files or time: what becomes of held-out pairs that stand among the training edges too. take_out:
    they neither train nor carry messages. keep: they do, counted and warned of: for published splits, whose scores
    would not compare else, and for events, which repeat and are to be foreseen from earlier ones."""
    negatives: StrTuple = ()
    """Link tasks by time: kinds of negatives that each edge is ranked against; scores are means over them. random: its
    source and any target of some edge that makes no edge of the split; historical: pairs that were edges in training
    and are none in the split; inductive: edges of the split at other times that training has not. Empty: a pool of
    random pairs."""
    per_edge: int = Field(default=1, ge=1, le=1000)
    """Negatives of each kind for an edge."""

    @property
    def names_columns(self) -> bool:
        """Whether files of pairs are read by their columns' names."""
        return any((self.source, self.target, self.relation_column, self.label))

    @model_validator(mode="after")
    def _consistent(self) -> SplitConfig:
        shares = self.train + self.valid + self.test
        if self.by in ("ratio", "stratified", "time") and abs(shares - 1) > 1e-6:
            raise ValueError(f"train, valid and test are shares of 1; they add up to {shares:g}")
        if (self.by == "column") != (self.column is not None):
            raise ValueError("`column` and `by: column` go together")
        if (self.by == "files") != bool(self.files):
            raise ValueError("`files` and `by: files` go together")
        for name in self.files:
            if name not in SPLITS:
                raise ValueError(f"unknown split {name!r}{did_you_mean(name, SPLITS)} in split.files")
        for option, kinds in OF_LINKS.items():
            if self.by not in kinds and getattr(self, option) != type(self).model_fields[option].default:
                raise ValueError(f"split.{option} is for `by: {' or '.join(kinds)}` of links; leave it out")
        for kind in self.negatives:
            if kind not in NEGATIVE_KINDS:
                hint = f"{did_you_mean(kind, NEGATIVE_KINDS)}; known: {', '.join(NEGATIVE_KINDS)}"
                raise ValueError(f"split.negatives: unknown kind {kind!r}{hint}")
        if len(set(self.negatives)) < len(self.negatives):
            raise ValueError("split.negatives: a kind stands twice")
        if self.negatives and self.known_pairs != "keep":
            raise ValueError("split.negatives: these need edges that may come again; set split.known_pairs: keep")
        if self.per_edge > 1 and not self.negatives:
            raise ValueError("split.per_edge counts negatives of each kind: name the kinds, split.negatives")
        return self


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, dict | ConfigModel) else value


@DATASETS.options("tables", "graph_tables.dataset")
class TablesConfig(ComponentConfig):
    """Your own graph: node and edge tables in Parquet, CSV, TSV or edge lists, ids of any kind."""

    title: str = Field(default="tables", pattern=r"^[A-Za-z0-9][A-Za-z0-9._ -]*$", max_length=100)
    """Name of the data set, for people."""
    task: Literal["node", "edge", "link", "graph", "layout"] = "node"
    """What is predicted: a property of nodes, a property of edges (edges.label), missing edges, or a property of whole
    graphs (nodes.graph); layout: nothing, the graph is looked at, and labels may be left out."""
    task_type: Literal["multiclass", "binary", "multilabel", "regression"] = "multiclass"
    """Kind of label (node, edge and graph tasks)."""
    num_classes: int | None = Field(default=None, ge=2, le=1_000_000)
    """Labels are codes 0..num_classes-1; null: whatever classes are found, numbered in their order."""
    metric: MetricName | None = None
    """accuracy, rocauc, ap, rmse, mae, r2, f1, mrr or hits@K; null: by kind of label accuracy, rocauc, rmse (of
    several label columns r2) or hits@50."""
    text_ids: bool = False
    """Take all ids as texts, also where they look like numbers: `007` and `7` are then two nodes."""
    directed: bool = False
    """Whether an edge means one direction only."""
    nodes: Annotated[tuple[NodeTableConfig, ...], BeforeValidator(_as_list)] = ()
    """Node tables, one a type. A type that stands only in edges may be left out."""
    edges: Annotated[tuple[EdgeTableConfig, ...], BeforeValidator(_as_list)]
    """Edge tables."""
    labels: LabelFilesConfig | None = None
    """Labels that stand in files of their own; they belong to `target_type`."""
    target_type: str | None = None
    """Node type that carries the labels; null: the one that has a label column, or the only one."""
    split: SplitConfig = SplitConfig()
    """Training, validation and test."""
    num_negatives: int = Field(default=100_000, ge=1)
    """Random pairs that could be edges and are none, which validation and test are ranked against (link tasks)."""
    scored_edges: ScoredEdges = "left_out"
    """Edge tasks: whether an edge is among those that its own score is made of. left_out: edges of validation and test
    carry no messages, and while training those of a batch do not, each with all others between the same two ends. keep:
    all edges carry messages, in training as in evaluation: for graphs whose edges are all known before their labels.
    Labels are read in neither case."""
    target_relation: str | None = None
    """Link tasks with several edge tables: the relation that is predicted, by its name; the others are context, whose
    messages pass and which are never asked about. null: of the only table."""
    candidates: int | None = Field(default=None, ge=1, le=100_000)
    """Link tasks: targets that each held-out edge's own is ranked among. They are drawn for its source, of what could
    be joined to it, and none is joined to it in any split. null: where there are several edge tables or two node types
    all targets are ranked for each source, else all edges against one pool (`num_negatives`)."""

    @model_validator(mode="after")
    def _consistent(self) -> TablesConfig:
        if not self.edges:
            raise ValueError("edges: at least one table of edges is needed")
        types = [nodes.type for nodes in self.nodes]
        if len(set(types)) != len(types):
            raise ValueError(f"nodes: a type stands twice: {', '.join(types)}")
        labelled = [nodes.type for nodes in self.nodes if nodes.label]
        self._check_graph_tables()
        self._check_edge_labels()
        if self.task != "link":
            if self.task != "edge":
                self._check_labels(labelled)
            if self.target_relation is not None or self.candidates is not None:
                raise ValueError("target_relation and candidates are for link tasks; set task: link")
            if self.split.names_columns or self.split.known_pairs != "take_out" or self.split.negatives:
                raise ValueError(f"split.{', '.join(sorted(OF_LINKS))} are for link tasks")
        else:
            self._check_link(labelled)
        tables: tuple[NodeTableConfig | EdgeTableConfig, ...] = self.edges if self.task == "edge" else self.nodes
        if self.task == "link":
            tables = (self.predicted_edges,)
        if self.split.id is not None and (self.split.by != "files" or self.task == "link"):
            raise ValueError("split.id is for `by: files` of nodes or graphs; files of pairs have source and target")
        column = self.split.column
        if column is not None and any(
            column in (*table.features, *table.categorical, *table.texts) for table in tables
        ):
            raise ValueError(f"split.column: {column!r} is a feature too; a model must not read what it is tested on")
        self._check_added()
        return self

    @property
    def predicted_edges(self) -> EdgeTableConfig:
        """The edge table whose links are predicted. Raises ValueError where `target_relation` does not say which."""
        names = [edges.relation for edges in self.edges]
        wanted = self.target_relation
        if wanted is None and len(names) == 1:
            return self.edges[0]
        if names.count(wanted or "") != 1:
            known = f"the tables' relations are {', '.join(names)} (edges.relation; each its own name)"
            if wanted is None:
                raise ValueError(f"which links are predicted? Say target_relation; {known}")
            raise ValueError(f"target_relation: {wanted!r} names no single table{did_you_mean(wanted, names)}; {known}")
        return self.edges[names.index(str(wanted))]

    @property
    def is_typed(self) -> bool:
        """Whether links have other relations beside them, or join two node types."""
        return len(self.edges) > 1 or self.edges[0].source_type != self.edges[0].target_type

    @property
    def ranks_targets(self) -> bool:
        """Whether all targets are ranked for each source."""
        return self.is_typed and self.candidates is None and self.split.label is None

    @property
    def needs_whole_graph(self) -> str:
        """What of the task is not trained where a graph lies in parts, in words; empty: nothing."""
        if self.task != "link" or not (len(self.edges) > 1 or self.ranks_targets):
            return ""
        if len(self.edges) > 1:
            return "links with other relations as context"
        return "links with all targets ranked for each source (dataset.candidates=100 ranks them among some)"

    def reads_versions(self, by: str) -> bool:
        """Whether a snapshot of these tables is the tables as they were, and not rows picked by their times."""
        if by == "auto":
            has_times = any(nodes.time for nodes in self.nodes) or any(edges.time for edges in self.edges)
            return not has_times and open_references(self.source_files())
        return by == "versions"

    def with_versions(self, moment: str) -> TablesConfig:
        """Return the options with each table of which no version is named as of a moment. Raises ValueError."""
        if not open_references(self.source_files()):
            raise ValueError(f"snapshot.as_of={moment}: {NO_VERSIONS}")
        tables = {
            name: tuple(table.model_copy(update={"files": as_of(table.files, moment)}) for table in getattr(self, name))
            for name in ("nodes", "edges")
        }
        labels = self.labels
        labels = None if labels is None else labels.model_copy(update={"files": as_of(labels.files, moment)})
        return self.model_copy(update={**tables, "labels": labels})

    def source_files(self) -> list[str]:
        """Return the files of all tables as the recipe names them."""
        tables = (*self.nodes, *self.edges, *([] if self.labels is None else [self.labels]))
        return [file for table in tables for file in table.files]

    def _check_added(self) -> None:
        """Nodes that only edges name have no row: refuse what every node needs one for."""
        tables = {table.type: table for table in self.nodes}
        for edges in self.edges:
            for kind in (edges.source_type, edges.target_type) if edges.on_unknown_id == "add" else ():
                table = tables.get(kind)
                if table is None:
                    continue
                for name in ("time", "feature_file", "count"):
                    if getattr(table, name) is not None:
                        raise ValueError(f"edges: on_unknown_id: add cannot make up {name} of {kind} nodes; use drop")
                if table.files and table.id is None:
                    raise ValueError(f"edges: on_unknown_id: add needs a column `id` in the {kind} nodes")

    @property
    def label_table(self) -> NodeTableConfig | EdgeTableConfig | LabelFilesConfig:
        """The table that has the labels."""
        tables: tuple[NodeTableConfig | EdgeTableConfig, ...] = (*self.nodes, *self.edges)
        return self.labels or next(table for table in tables if table.label)

    def _check_edge_labels(self) -> None:
        of_edges = [table for table in self.edges if table.label]
        if self.task != "edge":
            named = next((table for table in self.edges if table.label or table.id), None)
            if named is not None:
                option = "label" if named.label else "id"
                raise ValueError(f"{named.names}: edges.{option} is for edge tasks; set task: edge")
            check_scored_edges(self.scored_edges, self.task)
            return
        if len(of_edges) != 1 or self.labels or any(nodes.label for nodes in self.nodes):
            raise ValueError(
                "an edge task needs one place of labels: `label` in one of edges, and none in nodes or `labels` "
                f"(found {len(of_edges)} in edges)"
            )
        [table] = of_edges
        if table.relation_column is not None:
            raise ValueError(f"{table.names}: edges that have labels are of one relation; leave relation_column out")
        self._check_label_columns(table.label)
        if self.split.by == "files":
            raise ValueError("split.by: edges are no rows of files; take ratio, stratified, time or column")

    def _check_labels(self, labelled: list[str]) -> None:
        places = len(labelled) + (self.labels is not None)
        if self.task == LAYOUT and not places:
            return
        if places != 1:
            raise ValueError(
                f"a node task needs one place of labels: `label` in one of nodes, or `labels` (found {places})"
            )
        columns = self.labels.label if self.labels else next(n.label for n in self.nodes if n.label)
        for table in self.nodes:
            if self.labels and set(self.labels.files) & set(table.files):
                both = sorted(set(columns) & {*table.features, *table.categorical, *table.texts})
                if both:
                    raise ValueError(
                        f"column {both[0]!r} of {table.names} is a label (labels.label) and a feature; "
                        "a model that reads the label has nothing left to learn"
                    )
        if self.labels and self.labels.form != "nodes" and self.task_type != "multilabel":
            raise ValueError(
                f"labels: form: {self.labels.form} gives a node any number of labels; set task_type: multilabel"
            )
        self._check_label_columns(columns)
        if self.target_type not in (None, *labelled) and not self.labels:
            raise ValueError(f"target_type {self.target_type} has no label column; {labelled[0]} has")
        if self.split.by == "files" and set(self.split.files) != set(SPLITS):
            raise ValueError("split.files needs train, valid and test")

    def _check_label_columns(self, columns: tuple[str, ...]) -> None:
        if len(columns) != 1 and self.task_type in ("multiclass", "binary"):
            raise ValueError(f"a {self.task_type} label has one column, not {len(columns)}")
        if self.num_classes is not None and self.task_type != "multiclass":
            raise ValueError(f"num_classes goes with multiclass labels, not {self.task_type}")
        if self.split.by == "stratified" and self.task_type not in ("multiclass", "binary"):
            raise ValueError(f"a {self.task_type} label has no classes to stratify by")

    def _check_link(self, labelled: list[str]) -> None:
        if labelled or self.labels:
            raise ValueError("a link task has no labels: leave out `label` and `labels`")
        edges = self.predicted_edges
        if edges.relation_column and self.is_typed:
            raise ValueError(
                f"edges {edges.relation}: links are predicted in one relation where there are several tables or node "
                "types: put it into a table of its own, and leave relation_column to the others"
            )
        if self.is_typed and self.split.negatives:
            raise ValueError("split.negatives are of one edge table within one node type; say `candidates` instead")
        if self.candidates and (self.split.negatives or self.split.label):
            raise ValueError("candidates: negatives are given or of kinds here (split); leave candidates out")
        if self.split.by == "files" and (edges.relation_column is None) != (self.split.relation_column is None):
            given, missing = "edges", "split"
            if edges.relation_column is None:
                given, missing = missing, given
            raise ValueError(
                f"{given}.relation_column needs {missing}.relation_column: a pair is asked about in a relation"
            )
        if edges.relation_column and self.split.negatives:
            raise ValueError("split.negatives are drawn for edges of one relation; leave edges.relation_column out")
        if self.split.by == "stratified":
            raise ValueError("a link task has no classes to stratify by")
        if self.split.by == "none":
            raise ValueError("split.by: none is for nodes and graphs; of links say which pairs to score (--pairs)")
        if self.split.by == "files" and set(self.split.files) != {"valid", "test"}:
            raise ValueError("split.files of a link task are valid and test; the edge table is what trains")

    def _check_graph_tables(self) -> None:
        tables: tuple[NodeTableConfig | EdgeTableConfig, ...] = (*self.nodes, *self.edges)
        named = [table for table in tables if table.graph is not None]
        if self.task != "graph":
            if named:
                raise ValueError(f"{named[0].names}: graph: {named[0].graph} is for graph tasks; set task: graph")
            return
        if len(self.nodes) != 1 or len(self.edges) != 1 or self.edges[0].relation_column is not None:
            raise ValueError("a graph task has one table of nodes and one of edges, of one relation")
        labels, [of_nodes], [of_edges] = self.labels, self.nodes, self.edges
        if not of_nodes.files or of_nodes.graph is None:
            raise ValueError("a graph task needs to know which graph a node is in: nodes: {files: ..., graph: COLUMN}")
        if {of_edges.source_type, of_edges.target_type} != {of_nodes.type}:
            raise ValueError(
                f"edges join {of_edges.source_type} and {of_edges.target_type}, and nodes are {of_nodes.type}"
            )
        if labels is None or labels.form != "nodes" or labels.on_unknown_id != "error":
            raise ValueError(
                "labels of graphs stand in a table of graphs, a row each with its id: labels: {files: ..., id: COLUMN, "
                "label: [...]}"
            )
        if of_edges.graph is not None and of_nodes.id is None:
            raise ValueError("edges.graph: ids that begin anew in each graph need a column of them: nodes.id")
        if of_edges.on_unknown_id == "add":
            raise ValueError(
                "edges: on_unknown_id: add: the graph of a node that only edges name is not known; use drop"
            )
        if self.split.by == "time":
            raise ValueError("split.by: graphs have no times; take ratio, stratified, column or files")
