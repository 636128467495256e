"""How fast models of typed graphs learn from a batch on one CPU thread, against PyG's layers on the same batches.

    python -m benchmarks.relational_models [--peers DIR] [--scale 0.25] [--rounds 9] [--models heterosage,rgat,hgt]

Batches are those of `benchmarks.relational_sampling`'s shop: 1,024 customers, each as of a moment of its own, fan-out
15,10 of each relation. Both sides read rows that are encoded already (float32, 128 columns), run two layers forward and
backward, and take turns batch by batch; a ratio is the median over rounds. PyG's are SAGEConv (mean) and GATConv for
each relation, summed, and HGTConv, which computes all rows of a layer's sources: it knows no fewer destinations.
Before that heterosage's result is compared with PyG's from the same weights.

DIR has torch_geometric for the Python that runs this. The table and relational-models.json go to --out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.embeddings import RESULTS
from benchmarks.gnn_report import keep, machine, print_machine
from benchmarks.relational_graph import BATCH_SIZE, FANOUTS, NODES, SEED_TYPE, SPAN_SECONDS, shop
from benchmarks.relational_sides import as_store
from configs.registry import MODELS
from models.facts import GraphFacts
from models.relational.batch import RelationBlock, TypedBlock
from tasks.processes.device import use_threads
from tasks.sampling.relational.edges import RelationalEdges
from tasks.sampling.relational.sampler import RelationalSampler

WIDTH, HEADS = 128, 4
TYPES = tuple(NODES)


@dataclass
class Case:
    """A batch: its blocks, and encoded rows of the outermost sources by type."""

    blocks: list[TypedBlock]
    x: dict[int, Tensor]


def make_cases(scale: float, count: int) -> tuple[list[Case], tuple[tuple[int, int], ...]]:
    """Sample batches around customers; the ids of types lie end to end."""
    store, kinds = as_store(shop(scale))
    ends = tuple((kind.source, kind.target) for kind in kinds)
    first = int(np.cumsum([0, *NODES.values()])[TYPES.index(SEED_TYPE)])
    sampler = RelationalSampler(RelationalEdges(store, kinds), FANOUTS, newest=True, positions=False)
    rng = np.random.default_rng(0)
    return [_case(sampler, first, ends, rng) for _ in range(count)], ends


def _case(sampler: RelationalSampler, first: int, ends: tuple[tuple[int, int], ...], rng: Any) -> Case:
    seeds = first + np.sort(rng.choice(NODES[SEED_TYPE], BATCH_SIZE, replace=False))
    found = sampler.sample(seeds, rng.integers(SPAN_SECONDS // 3, SPAN_SECONDS, BATCH_SIZE), int(rng.integers(1 << 40)))
    blocks = []
    for layer in found.layers:
        made = [
            RelationBlock(r, *ends[r], torch.from_numpy(one.indptr.copy()), torch.from_numpy(one.indices.copy()), n)
            for r, one in enumerate(layer.relations)
            for n in [layer.num_src[ends[r][0]]]
        ]
        blocks.append(TypedBlock(made, layer.num_src, layer.num_dst))
    x = {t: torch.randn(len(ids), WIDTH, requires_grad=True) for t, ids in enumerate(found.ids)}
    return Case(blocks, x)


def ours(name: str, ends: tuple[tuple[int, int], ...]) -> nn.Module:
    """Return the layers of one of our models, without encoders."""
    facts = GraphFacts("node", 1, sum(NODES.values()), num_node_types=len(TYPES), relation_ends=ends)
    options = {"name": name, "hidden_dim": WIDTH, "num_layers": len(FANOUTS), "dropout": 0.0, "norm": "none"}
    has_heads = "heads" in type(MODELS.config({"name": name})).model_fields
    model: Any = MODELS.create(MODELS.config(options | ({"heads": HEADS} if has_heads else {})), facts)
    layers: nn.Module = model.layers
    return layers


def run_ours(layers: Any, case: Case) -> Tensor:
    """Return the seeds' vectors."""
    x = case.x
    for block, layer in zip(case.blocks, layers, strict=True):
        x = layer(
            Case([TypedBlock([_fresh(r) for r in block.relations], block.num_src, block.num_dst)], {}).blocks[0], x
        )
    return x[0]


def _fresh(relation: RelationBlock) -> RelationBlock:
    """Return the relation without what an earlier step derived from it: a transpose is part of each step."""
    return RelationBlock(
        relation.number, relation.source_type, relation.target_type, relation.indptr, relation.indices, relation.num_src
    )


class PygLayer(nn.Module):
    """A convolution for each relation, summed, and a linear map of a destination's own row; ReLU."""

    def __init__(self, name: str, ends: tuple[tuple[int, int], ...], targets: tuple[int, ...]) -> None:
        from torch_geometric.nn import GATConv, SAGEConv

        super().__init__()
        self.ends = ends
        self.own = nn.ModuleDict({str(t): nn.Linear(WIDTH, WIDTH) for t in targets})
        make: Callable[[], nn.Module] = (
            (lambda: SAGEConv((WIDTH, WIDTH), WIDTH, root_weight=False, bias=False))
            if name == "heterosage"
            else (lambda: GATConv((WIDTH, WIDTH), WIDTH // HEADS, HEADS, add_self_loops=False, bias=False))
        )
        self.convs = nn.ModuleDict({str(r): make() for r, (_, target) in enumerate(ends) if target in targets})

    def forward(self, block: TypedBlock, x: dict[int, Tensor], edges: dict[int, Tensor]) -> dict[int, Tensor]:
        y = {int(t): own(x[int(t)][: block.num_dst[int(t)]]) for t, own in self.own.items()}
        for number, conv in self.convs.items():
            source, target = self.ends[int(number)]
            y[target] = y[target] + conv((x[source], x[target][: block.num_dst[target]]), edges[int(number)])
        return {t: torch.relu(value) for t, value in y.items()}


class PygHgt(nn.Module):
    """PyG's HGTConv, whose result is cut to the destinations."""

    def __init__(self, ends: tuple[tuple[int, int], ...]) -> None:
        from torch_geometric.nn import HGTConv

        super().__init__()
        self.kinds = [(str(source), str(r), str(target)) for r, (source, target) in enumerate(ends)]
        self.conv = HGTConv(WIDTH, WIDTH, ([str(t) for t in range(len(TYPES))], self.kinds), HEADS)

    def forward(self, block: TypedBlock, x: dict[int, Tensor], edges: dict[int, Tensor]) -> dict[int, Tensor]:
        rows = {str(t): value for t, value in x.items()}
        found = self.conv(rows, {kind: edges[int(kind[1])] for kind in self.kinds})
        return {t: found[str(t)][: block.num_dst[t]] for t in x}


def pyg(name: str, layers: Any, ends: tuple[tuple[int, int], ...]) -> nn.Module:
    """Return PyG's layers that compute as much as ours."""
    if name == "hgt":
        return nn.ModuleList(PygHgt(ends) for _ in layers)
    return nn.ModuleList(PygLayer(name, ends, layer.hop.targets) for layer in layers)


def run_pyg(layers: Any, case: Case) -> Tensor:
    """Return the seeds' vectors; the edges of a batch come as PyG's loaders give them, by ends."""
    x = case.x
    for block, layer in zip(case.blocks, layers, strict=True):
        edges = {r.number: torch.stack([r.indices.long(), r.adjacency.targets()]) for r in block.relations}
        x = layer(block, x, edges)
    return x[0]


def compare_results(layers: Any, peer: Any, case: Case) -> None:
    """Give PyG's heterosage our weights. Raises AssertionError where the results differ."""
    for own, other in zip(layers, peer, strict=True):
        for t, linear in own.conv.own.items():
            other.own[t].load_state_dict(linear.state_dict())
        for r, linear in own.conv.maps.items():
            other.convs[r].lin_l.weight.data.copy_(linear.weight.data)
    torch.testing.assert_close(run_ours(layers, case), run_pyg(peer, case), rtol=1e-3, atol=1e-4)


def seconds(run: Callable[[Any, Case], Tensor], layers: nn.Module, case: Case) -> float:
    """Return CPU seconds of a forward and a backward pass."""
    began = time.process_time()
    run(layers, case).square().sum().backward()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--scale", type=float, default=0.25)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--models", default="heterosage,rgat,hgt")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.peers is not None:
        sys.path.append(str(args.peers.absolute()))
    use_threads(1)
    torch.manual_seed(0)
    facts = machine()
    print_machine(facts)
    cases, ends = make_cases(args.scale, args.rounds + 1)
    edges = statistics.median(sum(block.num_edges for block in case.blocks) for case in cases)
    rows: list[dict[str, Any]] = []
    for name in args.models.split(","):
        layers = ours(name, ends)
        sides: dict[str, Any] = {"graphmill": (run_ours, layers)}
        if args.peers is not None:
            sides["PyG"] = (run_pyg, pyg(name, layers, ends))
            if name == "heterosage":
                compare_results(layers, sides["PyG"][1], cases[0])
        taken: dict[str, list[float]] = {side: [] for side in sides}
        for number, case in enumerate(cases):
            for side in sides if number % 2 else reversed(sides):
                taken[side].append(seconds(*sides[side], case))
        own = taken["graphmill"][1:]
        row: dict[str, Any] = {"model": name, "edges a batch": edges, "ms": round(1e3 * statistics.median(own), 1)}
        if "PyG" in taken:
            ratios = [theirs / mine for theirs, mine in zip(taken["PyG"][1:], own, strict=True)]
            row |= {"PyG ms": round(1e3 * statistics.median(taken["PyG"][1:]), 1)}
            row |= {"ratio": round(statistics.median(ratios), 2)}
            row |= {"ratios": [round(min(ratios), 2), round(max(ratios), 2)]}
        print(row)
        rows.append(row)
    keep(args, "relational-models", facts, rows=rows)


if __name__ == "__main__":
    main()
