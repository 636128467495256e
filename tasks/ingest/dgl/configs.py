"""Options of the data sets that are files of DGL or PyG; without imports that take time."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from pydantic import Field, model_validator

from configs.base import ComponentConfig
from configs.metric_names import MetricName
from configs.registry import DATASETS
from tasks.ingest.configs import ScoredEdges, check_scored_edges


class SavedGraphConfig(ComponentConfig):
    """Options of every file that holds graphs with arrays on nodes and edges."""

    node_word: ClassVar[str] = "ndata"
    edge_word: ClassVar[str] = "edata"

    path: str
    """The file."""
    task_type: Literal["multiclass", "binary", "multilabel", "regression"] | None = None
    """Kind of label; null: by its numbers (whole: classes; several 0/1 columns: multilabel; else: regression). Whole
    numbers below 0 that stand for no label are refused: only regression says that they are amounts."""
    metric: MetricName | None = None
    """accuracy, rocauc, ap, rmse, f1, mrr or hits@K; null: accuracy, rocauc, rmse or hits@50, by kind of label."""
    target: str | None = None
    """Of several types of nodes (edge tasks: of relations), whose labels count; null: the only one with labels."""
    train: str = "train_mask"
    """Boolean mask of nodes; edge tasks: of edges; link tasks: of edges, or pairs (n, 2) of nodes among what the file
    holds of the graph as a whole (of DGL the dictionary of labels); graph tasks: of graphs, there too."""
    valid: str = "val_mask"
    """As train."""
    test: str = "test_mask"
    """As train."""
    directed: bool = False
    """Whether an edge means one direction only; false where undirected edges are stored both ways."""

    scored_edges: ScoredEdges = "left_out"
    """Edge tasks: whether an edge is among those that its own score is made of; as that of `tables`."""

    runtime_fields: ClassVar[frozenset[str]] = frozenset({"path"})

    @model_validator(mode="after")
    def _of_edges(self) -> SavedGraphConfig:
        check_scored_edges(self.scored_edges, getattr(self, "task", None))
        return self

    def field_of(self, option: str, *, edges: bool) -> str:
        """Return the name of a field of nodes or of edges, which is option `edge_...` where there is one."""
        of_edges = f"edge_{option}"
        return str(getattr(self, of_edges if edges and of_edges in type(self).model_fields else option))


@DATASETS.options("dgl", "dgl.dataset")
class DglFileConfig(SavedGraphConfig):
    """Graphs that dgl.save_graphs wrote: one for node and link tasks, with types of nodes and edges, or many."""

    path: str
    """The file of `dgl.save_graphs`; read without DGL."""
    task: Literal["node", "edge", "link", "graph"] = "node"
    """What is predicted: labels of nodes or of edges of one graph, missing edges of it, or whole graphs."""
    graph: int = Field(default=0, ge=0)
    """All but graph tasks: which graph of the file, from 0."""
    labels: str = "label"
    """In ndata; edge tasks: in edata; graph tasks: in the dictionary of labels. -1, -100 (torch's ignore_index) or NaN:
    no label."""
    features: str = "feat"
    """Numbers, in ndata and in edata, (rows,) or (rows, dim)."""
    categories: str = "feat_cat"
    """Codes from 0, in ndata and in edata, (rows,) or (rows, columns)."""
    weight: str = "weight"
    """Weights, in edata."""
    time: str = "time"
    """Whole numbers, in ndata and in edata: snapshots go by them."""
    ids: str = "original_id"
    """Your ids, in ndata (graph tasks: among the labels): whole numbers, or UTF-8 bytes (rows, width) padded with 0."""


@DATASETS.options("pyg", "dgl.dataset")
class PygFileConfig(SavedGraphConfig):
    """A graph of PyG that torch.save wrote: `HeteroData` or `Data`, for node, edge and link tasks; read without PyG."""

    node_word: ClassVar[str] = "nodes"
    edge_word: ClassVar[str] = "edges"

    path: str
    """The file of `torch.save`: a `HeteroData`, a `Data`, or what their `to_dict()` gives. No code in it is run."""
    task: Literal["node", "edge", "link"] = "node"
    """What is predicted: labels of nodes, labels of edges, or missing edges (of one type of nodes and of edges)."""
    labels: str = "y"
    """Of nodes, or of edges. -1, -100 (torch's ignore_index) or NaN: no label."""
    features: str = "x"
    """Numbers of nodes, (rows,) or (rows, dim); each type may have others."""
    categories: str = "x_cat"
    """Codes of nodes from 0, (rows,) or (rows, columns)."""
    edge_features: str = "edge_attr"
    """Numbers of edges."""
    edge_categories: str = "edge_cat"
    """Codes of edges from 0."""
    weight: str = "edge_weight"
    """Weights of edges."""
    time: str = "time"
    """Whole numbers, of nodes: snapshots go by them."""
    edge_time: str = "edge_time"
    """The same of edges."""
    ids: str = "original_id"
    """Your ids of nodes: whole numbers, a list of texts, or their UTF-8 bytes (rows, width) padded with 0."""

    @property
    def read_fields(self) -> list[str]:
        """The names of all fields that are read."""
        options = ("labels", "train", "valid", "test", "ids")
        of_both = [name for name in type(self).model_fields if f"edge_{name}" in type(self).model_fields]
        named = [*options, "weight", *of_both, *(f"edge_{name}" for name in of_both)]
        return [getattr(self, name) for name in named]


GraphFileConfig: TypeAlias = DglFileConfig | PygFileConfig
