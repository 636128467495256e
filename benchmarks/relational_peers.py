"""The peers of `benchmarks.relational_sampling`, each in a process of its own, run by the Python that has them.

    PYTHON -m benchmarks.relational_peers PyG|GraphBolt FOLDER OPTIONS

Nothing of graphmill is imported here. A parent asks as in `embeddings_peers`; FOLDER has the graph, shop.npz. The job
`check` writes how many edges of each relation and hop some batches have to FOLDER/NAME.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.embeddings_peers import Done, Job, Paced, serve_side, timed
from benchmarks.relational_graph import FANOUTS, NODES, SEED_TYPE, Array, Relation, batch, load

ANY, AS_OF, RECENT = "without times", "as of each seed's moment", "newest as of each seed's moment"
CHECKED_BATCHES = 3
Sample = Callable[[Array, Array, int], Any]
"""Samples around seeds, with their cuts, in a batch of some number."""
Counts = dict[str, list[int]]
"""Edges of each relation by hop, from the seeds outwards."""


def timed_batches(make: Callable[[int], tuple[Array, Array]]) -> Callable[[Sample, int], Done]:
    """Return what times a sampler on batches that no call had before; `make(number)` gives seeds and cuts."""
    number = 0

    def work(sample: Sample, units: int) -> Done:
        nonlocal number
        first, number = number, number + units
        batches = [make(first + i) for i in range(units)]

        def take() -> float:
            for i, (seeds, cuts) in enumerate(batches):
                sample(seeds, cuts, first + i)
            return units

        return timed(take)

    return work


def make_jobs(name: str, folder: Path, kinds: dict[str, Sample], count: Callable[[Any], Counts]) -> dict[str, Job]:
    """Return a job of batches for each kind, and `check`."""
    work = timed_batches(batch)

    def check(seconds: float) -> Done:
        found: dict[str, Counts] = {}
        for kind, sample in kinds.items():
            sums = found[kind] = {}
            for i in range(CHECKED_BATCHES):
                for relation, hops in count(sample(*batch(i), i)).items():
                    sums[relation] = [a + b for a, b in zip(sums.get(relation, [0] * len(hops)), hops, strict=True)]
        (folder / f"{name}.json").write_text(json.dumps(found))
        return Done(0.0, 0.0, 0.0)

    return {"check": check} | {kind: Paced(partial(work, sample)) for kind, sample in kinds.items()}


def joined(ends: tuple[str, str, str] | Relation) -> str:
    return "__".join(ends) if isinstance(ends, tuple) else f"{ends.source}__{ends.name}__{ends.target}"


class Pyg:
    """PyG's NeighborSampler; as of a moment it samples a tree of its own for each seed (`disjoint`)."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        """Raises ImportError where it has no pyg-lib."""
        sys.path.append(options["peers"])
        import torch
        from torch_geometric.data import HeteroData
        from torch_geometric.sampler import NeighborSampler, NodeSamplerInput
        from torch_geometric.typing import WITH_PYG_LIB

        if not WITH_PYG_LIB:
            raise ImportError("its sampling as of a moment needs pyg-lib")
        data = HeteroData()
        for name, size in NODES.items():
            data[name].num_nodes = size
        for relation in load(folder / "shop.npz"):
            store = data[relation.source, relation.name, relation.target]
            targets = torch.arange(NODES[relation.target]).repeat_interleave(
                torch.from_numpy(relation.indptr[1:] - relation.indptr[:-1])
            )
            store.edge_index = torch.stack([torch.from_numpy(relation.sources), targets])
            store.time = torch.from_numpy(relation.times)
        fanouts = {ends: list(FANOUTS) for ends in data.edge_types}
        samplers = {
            ANY: NeighborSampler(data, fanouts),
            AS_OF: NeighborSampler(data, fanouts, time_attr="time", temporal_strategy="uniform"),
            RECENT: NeighborSampler(data, fanouts, time_attr="time", temporal_strategy="last"),
        }

        def sample(kind: str, seeds: Array, cuts: Array, number: int) -> Any:
            # It takes edges up to the moment, graphmill those before it.
            time = None if kind == ANY else torch.from_numpy(cuts - 1)
            inputs = NodeSamplerInput(None, torch.from_numpy(seeds), time, SEED_TYPE)
            return samplers[kind].sample_from_nodes(inputs)

        def count(out: Any) -> Counts:
            return {joined(ends): hops for ends, hops in out.num_sampled_edges.items()}

        self.jobs = make_jobs("PyG", folder, {kind: partial(sample, kind) for kind in samplers}, count)


class GraphBolt:
    """GraphBolt's samplers on its fused graph, as its data loader calls them."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        import numpy as np
        import torch
        from dgl import graphbolt
        from dgl.graphbolt.internal import unique_and_compact_csc_formats

        relations = load(folder / "shop.npz")
        graph = fused_graph(graphbolt, torch, np, relations)
        fanouts = [torch.full((len(relations),), fanout) for fanout in FANOUTS]
        pipe = torch.utils.data.datapipes.iter.IterableWrapper([])
        temporal = graphbolt.TemporalNeighborSampler(pipe, graph, fanouts[::-1], edge_timestamp_attr_name="time")
        none = {name: torch.empty(0, dtype=torch.int64) for name in NODES}

        def sample_any(seeds: Array, cuts: Array, number: int) -> Any:
            nodes, layers = {**none, SEED_TYPE: torch.from_numpy(seeds)}, []
            for fanout in fanouts:
                layer = graph.sample_neighbors(nodes, fanout)
                nodes, compacted = unique_and_compact_csc_formats(layer.sampled_csc, nodes)
                layers.append(compacted)
            return nodes, layers

        def sample_as_of(seeds: Array, cuts: Array, number: int) -> Any:
            nodes, layers = temporal.sample_subgraphs(
                {SEED_TYPE: torch.from_numpy(seeds)}, {SEED_TYPE: torch.from_numpy(cuts)}
            )
            return nodes, [layer.sampled_csc for layer in reversed(layers)]

        def count(out: Any) -> Counts:
            names = [joined(relation) for relation in relations]
            keys = [f"{relation.source}:{relation.name}:{relation.target}" for relation in relations]
            return {name: [len(hop[key].indices) for hop in out[1]] for name, key in zip(names, keys, strict=True)}

        self.jobs = make_jobs("GraphBolt", folder, {ANY: sample_any, AS_OF: sample_as_of}, count)


def fused_graph(graphbolt: Any, torch: Any, np: Any, relations: list[Relation]) -> Any:
    """All relations in one CSC, a node's in-edges by relation, as GraphBolt wants them."""
    starts = dict(zip(NODES, np.cumsum([0, *NODES.values()]).tolist(), strict=False))
    num_nodes = sum(NODES.values())
    counts = np.zeros((num_nodes, len(relations)), np.int64)
    for i, relation in enumerate(relations):
        first = starts[relation.target]
        counts[first : first + NODES[relation.target], i] = np.diff(relation.indptr)
    ends = np.cumsum(counts)
    begins = (ends - counts.reshape(-1)).reshape(counts.shape)
    indices, times = np.empty(ends[-1], np.int64), np.empty(ends[-1], np.int64)
    kinds = np.empty(ends[-1], np.uint8)
    for i, relation in enumerate(relations):
        first = starts[relation.target]
        shift = begins[first : first + NODES[relation.target], i] - relation.indptr[:-1]
        places = np.arange(len(relation.sources)) + np.repeat(shift, np.diff(relation.indptr))
        indices[places] = relation.sources + starts[relation.source]
        times[places], kinds[places] = relation.times, i
    names = [f"{relation.source}:{relation.name}:{relation.target}" for relation in relations]
    return graphbolt.fused_csc_sampling_graph(
        torch.from_numpy(np.concatenate([[0], ends.reshape(counts.shape)[:, -1]])),
        torch.from_numpy(indices),
        node_type_offset=torch.tensor([*starts.values(), num_nodes]),
        type_per_edge=torch.from_numpy(kinds),
        node_type_to_id={name: i for i, name in enumerate(NODES)},
        edge_type_to_id={name: i for i, name in enumerate(names)},
        edge_attributes={"time": torch.from_numpy(times)},
    )


def main() -> None:
    import torch

    torch.set_num_threads(1)
    serve_side({"PyG": Pyg, "GraphBolt": GraphBolt})


if __name__ == "__main__":
    main()
