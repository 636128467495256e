"""What benchmarks/gnn.py compares with what, and how much faster graphmill has to be."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.gnn_children import MALLOC_KEPT, Entry

SAGE = ("model=graphsage", "model.norm=none", "model.head=none", "model.aggregator=mean", "train.loader=neighbor")


def ours(name: str, recipe: str, *overrides: str) -> Entry:
    """graphmill's training; malloc as `graphmill run` sets it for its workers."""
    options = {"recipe": recipe, "overrides": [*SAGE, *overrides]}
    return Entry(name, "benchmarks.gnn_ours:Training", options, MALLOC_KEPT)


def mini_batch_entries(recipe: str) -> list[Entry]:
    """All that take part in the mini-batch contest."""
    return [
        ours("graphmill float32", recipe, "train.precision=float32", "train.loader.first_hop=fused"),
        ours("graphmill bfloat16", recipe, "train.precision=bfloat16", "train.loader.first_hop=fused"),
        ours("graphmill precomputed", recipe, "train.precision=bfloat16", "train.loader.first_hop=precomputed"),
        Entry("DGL", "benchmarks.gnn_dgl:MiniBatch"),
        Entry("DGL tuned", "benchmarks.gnn_dgl:MiniBatch", {"autocast": True}, MALLOC_KEPT),
        Entry("PyG", "benchmarks.gnn_pyg:MiniBatch"),
    ]


@dataclass(frozen=True)
class Comparison:
    """One line of the table: graphmill's job against a peer's."""

    measure: str
    ours: tuple[str, str]
    """Contender and job."""
    peer: tuple[str, str]
    target: float | None
    """So many times as fast (or as small) at least."""


F32, BF16, PRE = "graphmill float32", "graphmill bfloat16", "graphmill precomputed"
MINI_BATCH = (
    Comparison("sampling", (F32, "sample"), ("DGL", "sample"), 6),
    Comparison("sampling", (F32, "sample"), ("PyG", "sample"), 7),
    Comparison("sampling + gather (ours: + mean of layer 1)", (F32, "gather"), ("DGL", "gather"), 4),
    Comparison("sampling + gather (ours: + mean of layer 1)", (F32, "gather"), ("PyG", "gather"), 4),
    Comparison("epoch, float32", (F32, "train"), ("DGL", "train"), 3),
    Comparison("epoch, float32", (F32, "train"), ("PyG", "train"), 10),
    Comparison("epoch, float32, PyG trimmed", (F32, "train"), ("PyG", "train_trimmed"), 6),
    Comparison("epoch, bfloat16", (BF16, "train"), ("DGL", "train"), 6),
    Comparison("epoch, bfloat16, both", (BF16, "train"), ("DGL tuned", "train"), 3),
    Comparison("epoch, bfloat16, first hop precomputed", (PRE, "train"), ("DGL", "train"), 7),
    Comparison("epoch, bfloat16", (BF16, "train"), ("PyG", "train"), 30),
    Comparison("epoch, bfloat16, PyG trimmed", (BF16, "train"), ("PyG", "train_trimmed"), 15),
)
MEMORY = (
    Comparison("peak memory of training", (F32, "train"), ("DGL", "train"), 1),
    Comparison("peak memory of training", (F32, "train"), ("PyG", "train"), 1),
    Comparison("peak memory of training", (BF16, "train"), ("DGL", "train"), 1),
)


@dataclass(frozen=True)
class OperatorComparison:
    """One line: time and memory of a full-graph operator against a peer's."""

    measure: str
    ours: str
    peer: str
    job: str
    faster: float | None
    smaller: float | None


def operator_entries(width: int, recipe: str, device: str) -> dict[str, list[Entry]]:
    """Contenders of each operator contest, graphmill's first."""
    narrow, bf16 = {"width": width}, {"width": width, "dtype": "bfloat16"}
    gat = [
        *("model=gat", "model.heads=4", "model.self_loops=false", "model.activation=elu", "model.norm=none"),
        "train.loader=full",
    ]
    contests = {
        "aggregate": [
            Entry("graphmill float32", "benchmarks.gnn_ours:Aggregation", narrow, MALLOC_KEPT),
            Entry("graphmill bfloat16", "benchmarks.gnn_ours:Aggregation", bf16, MALLOC_KEPT),
            Entry("DGL", "benchmarks.gnn_dgl:Aggregation", narrow),
            Entry("torch gather + scatter", "benchmarks.gnn_torch:GatherScatter", narrow),
            Entry("torch.sparse", "benchmarks.gnn_torch:TorchSparse", narrow),
        ],
        "attend": [
            Entry("graphmill float32", "benchmarks.gnn_ours:Attention", {"width": 2 * width}, MALLOC_KEPT),
            Entry("graphmill bfloat16", "benchmarks.gnn_ours:Attention", {**bf16, "width": 2 * width}, MALLOC_KEPT),
            Entry("DGL", "benchmarks.gnn_dgl:Attention", {"width": 2 * width}),
            Entry("torch unfused", "benchmarks.gnn_torch:UnfusedAttention", {"width": 2 * width}),
        ],
        "epoch": [
            Entry(
                "graphmill float32", "benchmarks.gnn_ours:Training", {"recipe": recipe, "overrides": gat}, MALLOC_KEPT
            ),
            Entry("DGL", "benchmarks.gnn_dgl:FullGat"),
        ],
    }
    if device == "cuda":  # PyPI's DGL has no CUDA kernels; cuSPARSE and PyG are what there is to beat
        contests["aggregate"] += [
            Entry("torch.sparse bfloat16", "benchmarks.gnn_torch:TorchSparse", bf16),
            Entry("PyG", "benchmarks.gnn_torch:PygAggregation", narrow),
        ]
        del contests["epoch"]
        contests = {name: [e for e in entries if e.name != "DGL"] for name, entries in contests.items()}
    return contests


OPERATORS = (
    OperatorComparison("GCN aggregation", F32, "DGL", "aggregate", 1.3, None),
    OperatorComparison("GCN aggregation", BF16, "DGL", "aggregate", 2, None),
    OperatorComparison("GCN aggregation", F32, "torch gather + scatter", "aggregate", 12, 8),
    OperatorComparison("GCN aggregation", F32, "torch.sparse", "aggregate", None, None),
    OperatorComparison("GCN aggregation", BF16, "torch.sparse bfloat16", "aggregate", None, None),
    OperatorComparison("GCN aggregation", F32, "PyG", "aggregate", None, None),
    OperatorComparison("GAT operator, 4 heads", F32, "DGL", "attend", 5, 1 / 0.7),
    OperatorComparison("GAT operator, 4 heads", BF16, "DGL", "attend", 5, 1 / 0.7),
    OperatorComparison("GAT operator, 4 heads", F32, "torch unfused", "attend", None, 20),
    OperatorComparison("GAT epoch, full graph", F32, "DGL", "epoch", 3, 1 / 0.7),
)


def operator_bytes(job: str, name: str, num_nodes: int, num_edges: int, width: int) -> float:
    """Estimate what a contender needs; the factors fit what was measured on debdeps, November 2026."""
    if (job, name) == ("aggregate", "torch gather + scatter"):
        return 3.0 * num_edges * width * 4
    if (job, name) == ("attend", "torch unfused"):
        return 6.0 * num_edges * 2 * width * 4
    if job == "epoch":
        return 3.0 * (num_edges * 4 * 4 * 5 + num_nodes * 2 * width * 4 * 6)
    return 10.0 * num_nodes * width * 4 + 50.0 * num_edges
