"""Options of the data sets, apart from their code: recipes are checked without what reads data."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from configs.base import ComponentConfig
from configs.metric_names import MetricName
from configs.registry import DATASETS

DATASETS.options_in("database", "database.configs")
DATASETS.options_in("dgl", "dgl.configs")
DATASETS.options_in("pyg", "dgl.configs")
DATASETS.options_in("relbench", "database.relbench.configs")
DATASETS.options_in("synthetic", "synthetic.configs")
DATASETS.options_in("synthetic_shop", "synthetic.configs")
DATASETS.options_in("synthetic_triples", "synthetic.configs")
DATASETS.options_in("synthetic_vectors", "synthetic.configs")
DATASETS.options_in("tables", "graph_tables.configs")
DATASETS.options_in("triples", "triples.configs")
DATASETS.options_in("vectors", "vectors.configs")


ScoredEdges = Literal["left_out", "keep"]


def check_scored_edges(option: ScoredEdges, task: str | None) -> None:
    """Refuse the option where no edges are scored. Raises ValueError."""
    if option != "left_out" and task != "edge":
        raise ValueError("scored_edges is for edge tasks; leave it out")


@DATASETS.options("npz", "npz")
class NpzConfig(ComponentConfig):
    """One graph in a NumPy .npz file: edges, features (dense or CSR), classes of nodes or edges, splits."""

    path: str
    """The .npz file."""
    task: Literal["node", "edge"] = "node"
    """What has the classes: nodes, or edges in the order of `edges`."""
    edges: str = "edge_index"
    """(2, m) or (m, 2) node numbers from 0."""
    features: str = "x"
    """(num_nodes, dim); or the prefix of a CSR matrix saved as `x_indptr`, `x_indices`, `x_data`."""
    labels: str = "y"
    """(num_nodes,) whole numbers, edge tasks (m,); -1 or -100: no label. As pairs, (k, 2): a node and a label each."""
    edge_features: str = "edge_attr"
    """Edge tasks: (m, dim), what edges carry."""
    label_form: Literal["nodes", "pairs"] = "nodes"
    """What `labels` holds: a class for each node, or pairs, of which a node has any number (multilabel)."""
    train: str = "train"
    """Node numbers (k,) or a boolean mask (num_nodes,), also as one column; of several splits a row each. Edge tasks:
    of edges."""
    valid: str = "valid"
    """As train."""
    test: str = "test"
    """As train."""
    split_number: int = Field(default=0, ge=0)
    """Which row where the file holds several splits."""
    directed: bool = False
    """Whether an edge means one direction only; false where each undirected edge is stored once or both ways."""
    metric: Literal["accuracy", "f1", "rocauc", "ap"] | None = None
    """What models are judged by; null: accuracy, or f1 of pairs."""
    scored_edges: ScoredEdges = "left_out"
    """Edge tasks: whether an edge is among those that its own score is made of; as that of `tables`."""

    runtime_fields: ClassVar[frozenset[str]] = frozenset({"path"})

    @model_validator(mode="after")
    def _of_edges(self) -> NpzConfig:
        check_scored_edges(self.scored_edges, self.task)
        if self.task == "edge" and self.label_form == "pairs":
            raise ValueError("label_form: pairs are of nodes; edges have a class each")
        return self


@DATASETS.options("mat", "mat")
class MatConfig(ComponentConfig):
    """A graph in a MATLAB file, with several labels a node, as BlogCatalog, Flickr and PPI are published."""

    path: str
    """The .mat file, of version 5 to 7."""
    network: str = "network"
    """Matrix (n, n) of edges, sparse or not; other numbers than 0 and 1 are weights."""
    groups: str = "group"
    """Matrix (n, groups), sparse or not: other than 0 where a node belongs to a group."""
    metric: Literal["f1", "rocauc", "ap", "accuracy"] = "f1"
    """What models are judged by."""
    valid_share: float = Field(default=0.1, gt=0, lt=1)
    """Share of the nodes with a group in the validation split."""
    test_share: float = Field(default=0.1, gt=0, lt=1)
    """Share in the test split; the rest trains."""
    seed: int = Field(default=0, ge=0)
    """Seed of the splits."""

    runtime_fields: ClassVar[frozenset[str]] = frozenset({"path"})

    @model_validator(mode="after")
    def _fits(self) -> MatConfig:
        if self.valid_share + self.test_share >= 1:
            raise ValueError("valid_share + test_share must leave something to train on (be below 1)")
        return self


@DATASETS.options("ogb", "ogb.dataset")
class OgbDatasetConfig(ComponentConfig):
    """Open Graph Benchmark: node, link, graph and triple tasks by name (downloaded once), or a folder in its layout."""

    dataset: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """OGB's name (ogbn-arxiv, ogbl-ddi, ogbg-molhiv, ...), or the name of a folder in OGB's layout."""
    root: str | None = None
    """Folder that holds, or will hold, the data set's folder; null: `downloads/ogb` under the home."""
    task: Literal["node", "link", "graph", "triple"] | None = None
    """What is predicted. This and all below: only for a folder that OGB does not list."""
    task_type: Literal["multiclass", "binary", "multilabel", "regression", "link", "triple"] | None = None
    """Kind of label; null: multiclass (link for a link task, triple for a triple task)."""
    num_classes: int | None = Field(default=None, ge=2, le=1_000_000)
    """Classes of a multiclass label."""
    num_tasks: int = Field(default=1, ge=1)
    """Columns of the label file (multilabel and regression)."""
    metric: MetricName | None = None
    """accuracy, rocauc, ap, rmse, f1, mrr or hits@K; null: accuracy, rocauc, rmse, hits@50 or mrr, by kind of label."""
    split: str | None = None
    """Folder under split/; null: the only one there."""
    directed: bool = True
    """Whether edges mean one direction; false where each undirected edge is stored once."""
    categorical: bool = False
    """Whether the node and edge features are codes (0, 1, 2, ...) instead of measurements."""

    runtime_fields: ClassVar[frozenset[str]] = frozenset({"root"})
