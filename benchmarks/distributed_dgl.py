"""DistDGL's side of `benchmarks.distributed`: its partition's files, and the program of its servers and trainers.

    python -m benchmarks.distributed_dgl write GRAPH_FOLDER COUNT OUT    writes so many parts
    python -m benchmarks.distributed_dgl serve OUT OPTIONS               a server, a trainer or (spawned) a sampler

The program is DGL's own example of node classification (examples/distributed/graphsage): DistGraph, node_split,
NeighborSampler, DistNodeDataLoader, features and labels pulled for each batch, SAGEConv, DistributedDataParallel, Adam.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

from benchmarks.distributed_side import Pace
from benchmarks.gnn_dgl import Sage
from models.dgl.adapter import load_dgl

# At the top: samplers are spawned, import this file, and need DGL to be there.
dgl = load_dgl()
NAME = "graph"
_NODE, _EDGE = "_N", "_N:_E:_N"
_FANOUTS = (15, 10, 5)
_BATCH_SIZE = 1024
_CHECKED_EDGES = 2000


# ---- the partition


def write_parts(folder: Path, count: int, out: Path) -> None:
    """Write `dgl.distributed.partition_graph`'s files of a graph whose nodes lie by part already.

    Nodes and edges (in the order of the CSC) keep their ids, so that both sides have one graph in the same parts.
    """
    from tasks.storage.graph_store import GraphStore

    store: Any = GraphStore.open(folder)
    bounds = [int(bound) for bound in store.manifest.rank_bounds(count)]
    indptr = np.asarray(store["csc_indptr"])
    train = np.zeros(bounds[-1], bool)
    train[store["train_idx"]] = True
    ranges: dict[str, list[list[int]]] = {"node": [], "edge": []}
    files: dict[str, Any] = {}
    for part, (first, end) in enumerate(pairwise(bounds)):
        inside = out / f"part{part}"
        inside.mkdir(parents=True)
        ranges["node"].append([first, end])
        ranges["edge"].append([int(indptr[first]), int(indptr[end])])
        dgl.save_graphs(str(inside / "graph.dgl"), [_part_graph(store, first, end)], formats="csc")
        features = {
            f"{_NODE}/feat": torch.from_numpy(np.array(store["feat"][first:end], np.float32)),
            f"{_NODE}/label": torch.from_numpy(np.array(store["label"][first:end], np.int64)),
            f"{_NODE}/train_mask": torch.from_numpy(train[first:end].copy()),
        }
        dgl.data.utils.save_tensors(str(inside / "node_feat.dgl"), features)
        dgl.data.utils.save_tensors(str(inside / "edge_feat.dgl"), {})
        kinds = {"node_feats": "node_feat", "edge_feats": "edge_feat", "part_graph": "graph"}
        files[f"part-{part}"] = {kind: f"part{part}/{name}.dgl" for kind, name in kinds.items()}
    content = {
        "graph_name": NAME,
        "num_nodes": bounds[-1],
        "num_edges": int(indptr[-1]),
        "part_method": "given",
        "num_parts": count,
        "halo_hops": 1,
        "node_map": {_NODE: ranges["node"]},
        "edge_map": {_EDGE: ranges["edge"]},
        "ntypes": {_NODE: 0},
        "etypes": {_EDGE: 0},
        **files,
    }
    (out / f"{NAME}.json").write_text(json.dumps(content))


def _part_graph(store: Any, first: int, end: int) -> Any:
    """The in-edges of nodes first to end - 1; their sources in other parts come behind these nodes."""
    offsets = np.asarray(store["csc_indptr"][first : end + 1])
    sources = np.asarray(store["csc_indices"][offsets[0] : offsets[-1]]).astype(np.int64)
    outside = (sources < first) | (sources >= end)
    halo = np.unique(sources[outside])
    local = sources - first
    local[outside] = end - first + np.searchsorted(halo, sources[outside])
    indptr = np.concatenate([offsets - offsets[0], np.full(len(halo), offsets[-1] - offsets[0])]).astype(np.int64)
    edges = torch.arange(len(local))
    graph = dgl.graph(("csc", (torch.from_numpy(indptr), torch.from_numpy(local), edges)), num_nodes=len(indptr) - 1)
    graph.ndata[dgl.NID] = torch.from_numpy(np.concatenate([np.arange(first, end), halo]))
    graph.ndata["inner_node"] = (torch.arange(len(indptr) - 1) < end - first).to(torch.uint8)
    graph.edata[dgl.EID] = edges + int(offsets[0])
    graph.edata["inner_edge"] = torch.ones(len(local), dtype=torch.uint8)
    return graph


# ---- servers and trainers


class Trainer:
    """A script as DGL's example."""

    def __init__(self, out: Path, options: dict[str, Any]) -> None:
        torch.set_num_threads(1)
        torch.distributed.init_process_group("gloo", timeout=datetime.timedelta(hours=6))
        self.graph = dgl.distributed.DistGraph(NAME, part_config=str(out / f"{NAME}.json"))
        nodes = dgl.distributed.node_split(
            self.graph.ndata["train_mask"], self.graph.get_partition_book(), force_even=True
        )
        sampler = dgl.dataloading.NeighborSampler(list(reversed(_FANOUTS)))
        self.loader = dgl.dataloading.DistNodeDataLoader(
            self.graph, nodes, sampler, batch_size=_BATCH_SIZE, shuffle=True, drop_last=True
        )
        self.store = options["graph"]
        in_dim = self.graph.ndata["feat"].shape[1]
        torch.manual_seed(0)
        sage = Sage(in_dim, options["hidden_dim"], options["num_classes"], len(_FANOUTS), options["dropout"])
        self.model = torch.nn.parallel.DistributedDataParallel(sage)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=options["learning_rate"])

    def batches(self) -> Iterator[tuple[Any, ...]]:
        """Yield batches for ever: blocks, features of their input nodes, labels of the seeds, the ids of both."""
        while True:
            for inputs, seeds, blocks in self.loader:
                yield blocks, self.graph.ndata["feat"][inputs], self.graph.ndata["label"][seeds], inputs, seeds

    def run(self) -> None:
        """Take batches as the parent asks for them."""
        pace = Pace(torch.distributed.get_rank())
        batches = self.batches()
        while pace.wants("check"):
            pace.took(**self.check(*next(batches)))
        while pace.wants("batches"):
            blocks, _, _, _, seeds = next(batches)
            pace.took(seeds=len(seeds), edges=sum(block.num_edges() for block in blocks))
        self.model.train()
        while pace.wants("steps"):
            blocks, x, target, _, _ = next(batches)
            loss = F.cross_entropy(self.model(blocks, x), target)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            pace.took()

    def check(self, blocks: Any, x: Any, target: Any, inputs: Any, seeds: Any) -> dict[str, float]:
        """Return what a batch holds, once its features, labels and some of its edges are found in graphmill's files."""
        from tasks.storage.graph_store import GraphStore

        store = GraphStore.open(Path(self.store))
        assert np.array_equal(x.numpy(), store["feat"][inputs.numpy()]), "features are another node's"
        assert np.array_equal(target.numpy(), store["label"][seeds.numpy()]), "labels are another node's"
        for block in blocks:
            src, dst = (ends[:_CHECKED_EDGES] for ends in block.edges())
            for u, v in zip(block.srcdata[dgl.NID][src].tolist(), block.dstdata[dgl.NID][dst].tolist(), strict=True):
                start, stop = store["csc_indptr"][v : v + 2]
                assert u in store["csc_indices"][start:stop], f"no edge leads from {u} to {v}"
        edges = {f"edges_{layer}": block.num_edges() for layer, block in enumerate(blocks)}
        return {"seeds": len(seeds), "inputs": len(inputs), **edges}


def serve(out: Path, options: dict[str, Any]) -> None:
    """Be what DGL_ROLE says; a server does not return."""
    dgl.distributed.initialize(os.environ["DGL_IP_CONFIG"])
    Trainer(out, options).run()
    os._exit(0)  # DGL would wait for machines that are ended already


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write_parts(Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    else:
        serve(Path(sys.argv[2]), json.loads(sys.argv[3]))
