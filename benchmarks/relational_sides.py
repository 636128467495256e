"""graphmill's side of `benchmarks.relational_sampling`, and DGL's, which comes with graphmill.

    python -m benchmarks.relational_sides graphmill|DGL FOLDER OPTIONS

A parent asks as in `embeddings_peers`; see `relational_peers` for the job `check`.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from benchmarks.embeddings_peers import serve_side
from benchmarks.relational_graph import FANOUTS, NODES, SEED_TYPE, Array, Relation, load
from benchmarks.relational_peers import ANY, AS_OF, RECENT, Counts, joined, make_jobs
from models.dgl.adapter import load_dgl, use_threads
from tasks.processes.children import die_with_parent
from tasks.sampling.relational import edges as relational
from tasks.sampling.relational.sampler import RelationalSampler, TypedSample
from tasks.storage.graph_store import GraphStore
from tasks.storage.manifests import ArrayEntry


def as_store(relations: list[Relation]) -> tuple[GraphStore, list[relational.Relation]]:
    """Return the graph as preprocess would write it, and what its relations are."""
    names, sizes = list(NODES), list(NODES.values())
    starts = np.concatenate([[0], np.cumsum(sizes)])
    kinds = [relational.Relation(joined(one), names.index(one.source), names.index(one.target)) for one in relations]
    src = np.concatenate([one.sources + starts[kind.source] for one, kind in zip(relations, kinds, strict=True)])
    dst = np.concatenate(
        [
            np.repeat(np.arange(len(one.indptr) - 1), np.diff(one.indptr)) + starts[kind.target]
            for one, kind in zip(relations, kinds, strict=True)
        ]
    )
    edge_type = np.repeat(np.arange(len(relations), dtype=np.int16), [len(one.sources) for one in relations])
    order = np.lexsort((src, dst))
    arrays = {
        "csc_indptr": np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=starts[-1]))]),
        "csc_indices": src[order].astype(np.int32),
        "edge_type": edge_type[order],
        "edge_time": np.concatenate([one.times for one in relations])[order],
        "node_type": np.repeat(np.arange(len(sizes), dtype=np.int16), sizes),
    }
    entries = {name: ArrayEntry(path=f"{name}.npy", dtype=a.dtype.name, shape=a.shape) for name, a in arrays.items()}
    store = GraphStore(Path(), SimpleNamespace(symmetric=False, node_types=tuple(names), arrays=entries))
    store._open.update(arrays)
    return store, kinds


class Ours:
    """Samples with the edges' positions, as the peers give their ids."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        edges = relational.RelationalEdges(*as_store(load(folder / "shop.npz")))
        uniform, recent = RelationalSampler(edges, FANOUTS), RelationalSampler(edges, FANOUTS, newest=True)
        kinds = {
            ANY: lambda seeds, cuts, number: uniform.sample(seeds, None, number),
            AS_OF: uniform.sample,
            RECENT: recent.sample,
        }

        def count(sample: TypedSample) -> Counts:
            hops = sample.layers[::-1]
            return {
                relation.name: [len(hop.relations[i].indices) for hop in hops]
                for i, relation in enumerate(edges.relations)
            }

        self.jobs = make_jobs("graphmill", folder, kinds, count)


def dgl_graph(folder: Path) -> Any:
    """Return the graph in a folder as DGL's, on this process' one thread."""
    dgl = load_dgl()
    use_threads(1)
    csc = {
        (one.source, one.name, one.target): (
            "csc",
            (torch.from_numpy(one.indptr), torch.from_numpy(one.sources), torch.arange(len(one.sources))),
        )
        for one in load(folder / "shop.npz")
    }
    kinds = {kind for source, _, target in csc for kind in (source, target)}
    return dgl.heterograph(csc, num_nodes_dict={kind: size for kind, size in NODES.items() if kind in kinds})


class Dgl:
    """DGL's NeighborSampler on a heterograph: `sample_neighbors` and `to_block` in turn."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        dgl, graph = load_dgl(), dgl_graph(folder)
        sampler = dgl.dataloading.NeighborSampler(list(reversed(FANOUTS)))

        def sample(seeds: Array, cuts: Array, number: int) -> Any:
            return sampler.sample(graph, {SEED_TYPE: torch.from_numpy(seeds)})

        def count(out: Any) -> Counts:
            return {
                joined(ends): [block.num_edges(ends) for block in reversed(out[2])] for ends in graph.canonical_etypes
            }

        self.jobs = make_jobs("DGL", folder, {ANY: sample}, count)


def main() -> None:
    die_with_parent()
    torch.set_num_threads(1)
    serve_side({"graphmill": Ours, "DGL": Dgl})


if __name__ == "__main__":
    main()
