"""How well explanations find what is known to matter, beside PyG's GNNExplainer, and how long they take.

    python -m benchmarks.explain [--quick] [--nodes 30] [--large 1200000]

Graphs whose labels are known to come from some edges, made here: BA-shapes (houses on a graph by preferential
attachment) and tree-grid (grids on a binary tree), after Ying et al. (https://arxiv.org/abs/1903.03894), and rings: an
account is a fraud's where its neighbours are mules who have a cash desk; mules and desks alone are common. In these a
part of the motif is enough to tell the label. In `whole grids` and `whole rings` it is not: others that lack one edge
have the other label. GraphSAGE (sums, three layers) learns each. Of nodes in a motif that are rightly classified: the
ROC-AUC of the edges' effects against the motif's own edges, among the edges of the neighbourhood, as a mean over nodes.
Fidelity+ is what the probability loses without the strongest edges, as many as the motif has, less what it loses
without as many random ones (the more the better); fidelity- what it loses with these edges alone, less the same (the
less the better). `motif` has the motif's edges themselves as the strongest ones. `Shapley` is what the model makes of
each edge by removing edges one after the other in 50 random orders: what it is blind to no explanation of it can find.
PyG is asked where it is installed: the same weights in its SAGEConv, which give the same scores; its default
options. Then seconds of an explanation by removal on a graph of `--large` nodes. All on one thread.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.explain_graphs import MADE, Made, stored
from benchmarks.gnn_report import machine, print_machine
from configs.registry import EXPLAINERS, MODELS
from models.base import GraphModel
from models.block import Batch
from tasks.arrays import Array, blocks
from tasks.explain.asked_score import asked_score
from tasks.explain.features import Features
from tasks.explain.neighborhood import edge_ends
from tasks.explain.scored import ScoredNeighborhood, edges_left_out
from tasks.inference.predictor import Predictor
from tasks.sampling.rows.features import FeatureSource, whole_graph
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore

OURS: dict[str, dict[str, Any]] = {
    "removal": {"name": "removal", "most": 100_000},
    "integrated": {"name": "integrated"},
    "mask": {"name": "mask"},
}


Effects = Callable[[ScoredNeighborhood], Array]
"""Returns how much each unit of edges moved the score."""


@dataclass
class Found:
    """One method on one graph: means over nodes."""

    auc: float
    plus: float
    minus: float
    seconds: float


def trained(store: GraphStore, hidden: int, epochs: int) -> tuple[GraphModel, float]:
    """Return a GCN that has learnt all labels of the graph, and its accuracy."""
    torch.manual_seed(0)
    options = {"num_layers": 3, "hidden_dim": hidden, "dropout": 0.0, "norm": "none"}
    config = MODELS.config({"name": "graphsage", "aggregator": "sum", **options})
    model: GraphModel = MODELS.create(config, graph_facts(store.manifest))
    block, inputs = whole_graph(store, FeatureSource.of(store, model))
    labels = torch.from_numpy(np.array(store["label"]))
    weight = 1.0 / torch.bincount(labels).float()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    best, state = 0.0, {}
    for epoch in range(epochs):
        optimizer.zero_grad()
        scores = model(Batch([block], inputs, labels, len(labels)))
        torch.nn.functional.cross_entropy(scores, labels, weight).backward()
        optimizer.step()
        accuracy = float((scores.argmax(1) == labels).float().mean())
        if epoch > epochs // 2 and accuracy >= best:
            best, state = accuracy, {name: value.clone() for name, value in model.state_dict().items()}
            if best == 1.0:
                break
    model.load_state_dict(state)
    return model.eval(), float(
        (Predictor(store).node_scores(model, np.arange(len(labels))).argmax(1) == store["label"]).mean()
    )


def neighborhoods(
    store: GraphStore, model: GraphModel, made: Made, nodes: Array
) -> Iterator[tuple[ScoredNeighborhood, Array]]:
    """Yield the neighbourhoods of nodes, and which units of their edges are of the motif, bool (U,)."""
    width = made.feat.shape[1]
    names = Features([f"x{i}" for i in range(width)], np.arange(width), made.feat.mean(0).astype(np.float64))
    scored = ScoredNeighborhood(store, model, names, asked_score(store, model, None, None), most_edges=10**7)
    for node in nodes.tolist():
        scored.look_at(np.array([node], np.int32))
        units, ids = scored.hood.units, scored.hood.nodes
        ends = np.sort(np.stack([ids[units.source], ids[units.target]], 1), 1)
        truth = np.isin(ends[:, 0] * len(made.label) + ends[:, 1], made.keys(node))
        if 0 < truth.sum() < len(truth):
            yield scored, truth


def of_method(around: Iterator[tuple[ScoredNeighborhood, Array]], method: Effects | None) -> Found:
    """Measure what a method returns for each unit of edges; None: 1 for those of the motif."""
    rng, found = np.random.default_rng(0), []
    for scored, truth in around:
        begin = time.perf_counter()
        effect = method(scored) if method else truth.astype(np.float64)
        seconds = time.perf_counter() - begin
        chosen = np.zeros((2, len(truth)), bool)
        chosen[0, np.argsort(-effect, kind="stable")[: truth.sum()]] = True
        chosen[1, rng.permutation(len(truth))[: truth.sum()]] = True
        score = scored.scores(scored.variants(1))[0, 0]
        lost = score - scored.scores(edges_left_out(scored, np.concatenate([chosen, ~chosen])))[:, 0]
        found.append((auc(effect, truth), *lost, seconds))
    of = np.array(found).mean(0)
    return Found(of[0], of[1] - of[2], of[3] - of[4], float(np.median([one[5] for one in found])))


def alone(around: Iterator[tuple[ScoredNeighborhood, Array]]) -> str:
    """Say by how much the probability moves without one edge of the motif, without one other, and without the motif."""
    moved = []
    for scored, truth in around:
        each = np.concatenate([np.eye(len(truth), dtype=bool), truth[None]])
        change = np.abs(scored.scores(scored.variants(1)) - scored.scores(edges_left_out(scored, each)))[:, 0]
        moved.append((change[:-1][truth].mean(), change[:-1][~truth].mean(), change[-1]))
    one, other, every = np.array(moved).mean(0)
    return f"without one edge of the motif {one:.3f}, without one other {other:.3f}, without the motif {every:.3f}"


def auc(effect: Array, truth: Array) -> float:
    """Return the area under the ROC curve; ties count half."""
    from scipy.stats import rankdata

    ranks = rankdata(effect)
    ones = int(truth.sum())
    return float((ranks[truth].sum() - ones * (ones + 1) / 2) / (ones * (len(truth) - ones)))


def ours(options: dict[str, Any]) -> Effects:
    explainer = EXPLAINERS.create(EXPLAINERS.config(options))

    def effects(scored: ScoredNeighborhood) -> Array:
        found = next(one for one in explainer.explain(scored).effects if one.part == "edge")
        effect = np.zeros(len(scored.hood.units))
        effect[found.place] = np.abs(found.moved)  # what moves a score, up or down
        return effect

    return effects


def pyg(store: GraphStore, model: GraphModel) -> Effects:
    """Return PyG's GNNExplainer on the same weights. Raises AssertionError: the scores are not the same."""
    from torch_geometric.explain import Explainer, GNNExplainer
    from torch_geometric.nn import SAGEConv

    class Same(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            convs = [layer.conv for layer in model.layers]
            self.convs = torch.nn.ModuleList(SAGEConv(*c.own.weight.shape[::-1], aggr="sum") for c in convs)
            for mine, theirs in zip(self.convs, convs, strict=True):
                mine.lin_l.weight.data.copy_(theirs.neighbor.weight)
                mine.lin_l.bias.data.copy_(theirs.own.bias)
                mine.lin_r.weight.data.copy_(theirs.own.weight)
            self.head = model.head

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            for conv in self.convs:
                x = conv(x, edge_index).relu()
            return self.head.score(x)

    same = Same().eval()
    indptr = np.asarray(store["csc_indptr"])
    target = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    index = torch.from_numpy(np.stack([np.asarray(store["csc_indices"], np.int64), target]))
    feat = torch.from_numpy(np.array(store["feat"]))
    with torch.no_grad():
        expected = Predictor(store).node_scores(model, np.arange(len(feat)))
        assert np.abs(same(feat, index).numpy() - expected).max() < 1e-3
    explainer = Explainer(
        model=same,
        algorithm=GNNExplainer(),
        explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )

    def effects(scored: ScoredNeighborhood) -> Array:
        torch.manual_seed(0)
        hood, units = scored.hood, scored.hood.unit_of[0]  # edges that the score does not depend on are left out
        ends = torch.from_numpy(hood.nodes.astype(np.int64)[np.stack(edge_ends(hood.layers[0]))])
        mask = explainer(feat, ends, index=int(hood.nodes[0])).edge_mask.numpy()
        return np.bincount(units, mask, len(hood.units)) / 2

    return effects


def shapley(scored: ScoredNeighborhood) -> Array:
    """Return the mean change of the odds' logarithm over random orders of removal."""
    count, rng = len(scored.hood.units), np.random.default_rng(0)
    total = np.zeros(count)
    for _ in range(50):
        order = rng.permutation(count)
        removed = np.argsort(order)[None] < np.arange(count + 1)[:, None]
        parts = blocks(count + 1, scored.at_once)
        odds = [scored.scores(edges_left_out(scored, removed[some]))[:, 1] for some in parts]
        total[order] -= np.diff(np.concatenate(odds))
    return np.abs(total)


def quality(args: argparse.Namespace, folder: Path) -> dict[str, dict[str, Any]]:
    lines: dict[str, dict[str, Any]] = {}
    print("| graph | method | ROC-AUC | fidelity+ | fidelity- | seconds |\n|---|---|--:|--:|--:|--:|")
    for name in args.graphs:
        made = MADE[name](np.random.default_rng(0))
        store = stored(folder / name, made)
        model, accuracy = trained(store, args.hidden, args.epochs)
        right = Predictor(store).node_scores(model, np.arange(len(made.label))).argmax(1) == made.label
        nodes = np.flatnonzero((made.motif >= 0) & right & made.asked)
        nodes = np.random.default_rng(1).permutation(nodes)[: args.nodes]
        print(f"{name}, the probability moves by: {alone(neighborhoods(store, model, made, nodes))}", flush=True)
        methods: dict[str, Effects | None] = {own: ours(options) for own, options in OURS.items()}
        if importlib.util.find_spec("torch_geometric") is not None:
            methods["PyG, default"] = pyg(store, model)
        methods |= {"Shapley": shapley, "motif": None}
        for method, run in methods.items():
            found = of_method(neighborhoods(store, model, made, nodes), run)
            lines[f"{name}, {method}"] = {"accuracy": accuracy, **vars(found)}
            values = f"{found.auc:.3f} | {found.plus:+.3f} | {found.minus:+.3f} | {found.seconds:.2f}"
            print(f"| {name} (accuracy {accuracy:.3f}) | {method} | {values} |", flush=True)
    return lines


def speed(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Time explanations by removal on a large graph of random edges, of degrees by a power law."""
    rng, count = np.random.default_rng(0), args.large
    ends = (count * rng.random((2, 4 * count)) ** 1.5).astype(np.int64)
    feat = rng.standard_normal((count, 32)).astype(np.float32)
    made = Made(ends[:, ends[0] != ends[1]], feat, rng.integers(0, 2, count), np.full(count, -1))
    store = stored(folder / "large", made)
    torch.manual_seed(0)
    config = MODELS.config({"name": "graphsage", "num_layers": 2, "hidden_dim": 64})
    model: GraphModel = MODELS.create(config, graph_facts(store.manifest)).eval()
    names = Features([str(i) for i in range(32)], np.arange(32), feat[::1000].mean(0).astype(np.float64))
    scored = ScoredNeighborhood(store, model, names, asked_score(store, model, None, None), most_edges=20_000)
    explainer, seconds, edges = EXPLAINERS.create(EXPLAINERS.config("removal")), [], []
    for node in rng.integers(0, count, args.nodes + 1).tolist():
        begin = time.perf_counter()
        scored.look_at(np.array([node], np.int32))
        explainer.explain(scored)
        seconds.append(time.perf_counter() - begin)
        edges.append(len(scored.hood.units))
    seconds, edges = seconds[1:], edges[1:]  # the first one compiles kernels
    made_of = {"nodes": count, "edges": store.manifest.num_edges, "edges of neighbourhoods": statistics.median(edges)}
    found = {
        **made_of,
        "median_seconds": statistics.median(seconds),
        "slowest_seconds": max(seconds),
        "most_edges": max(edges),
    }
    print(f"removal, {found}", flush=True)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20, help="explained of each graph")
    parser.add_argument("--graphs", nargs="*", default=[*MADE], choices=[*MADE])
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=1500)
    parser.add_argument("--large", type=int, default=1_200_000)
    parser.add_argument("--quick", action="store_true", help="few nodes and epochs, and a smaller large graph")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    if args.quick:
        args.nodes, args.epochs, args.large = 5, 300, 50_000
    torch.set_num_threads(1)
    facts = machine()
    print_machine(facts)
    with tempfile.TemporaryDirectory() as folder:
        found = {"machine": facts, "quality": quality(args, Path(folder)), "speed": speed(args, Path(folder))}
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "explain.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
