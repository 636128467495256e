"""How fast mini-batches get ready: neighbour sampling and feature gathering, against DGL's sampler and PyG's.

    python -m benchmarks.sampling [--graphs debdeps,generated] [--large] [--rounds 15] [--threads 1]

Batches of 1024 seeds, fan-out 15,10,5 from the seeds outwards. All contenders of a job run in turn on the same seeds,
in one process, in an order that changes from round to round; the table has medians of CPU milliseconds a batch (of all
threads) and medians of the rounds' ratios. Before anything is timed, the numbers of edges and nodes that batches reach
are compared with DGL's. DGL runs as its users run it: int64 ids, a new tensor for every batch. PyG's NeighborLoader
takes part where it is installed with pyg-lib or torch-sparse.

The graphs: debdeps where it is at hand (GRAPHMILL_DATA, default ../shared/data), and a generated one; `--large` makes
that 1.2 M nodes and 27 M undirected edges with 100 features. Figures go to benchmarks/results/sampling.json too.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from configs.registry import DATASETS
from models.dgl.adapter import load_dgl, use_threads
from tasks.preprocess.edges.shard_kernels import Packing, expand_edges, sort_and_compress
from tasks.sampling.neighborhoods.neighbors import NeighborSampler
from tasks.sampling.rows.features import FeatureSource
from tasks.storage.graph_store import Array, GraphStore
from tasks.storage.manifests import ArrayEntry
from tasks.train.loaders.neighbor import Neighborhoods

RESULTS = Path(__file__).parent / "results"
DATA = Path(os.environ.get("GRAPHMILL_DATA", "../shared/data"))
FANOUTS = (15, 10, 5)
BATCH_SIZE = 1024
SMALL, LARGE = (100_000, 1_500_000), (1_200_000, 27_000_000)


@dataclass
class Graph:
    """A symmetric graph with features, held in memory by every contender."""

    name: str
    indptr: Array
    indices: Array
    feat: Array
    edge_weight: Array = field(init=False)

    def __post_init__(self) -> None:
        self.edge_weight = np.random.default_rng(0).random(len(self.indices), dtype=np.float32) + np.float32(0.01)

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1

    def store(self) -> GraphStore:
        """The arrays as loaders read them."""
        arrays = {"csc_indptr": self.indptr, "csc_indices": self.indices, "edge_weight": self.edge_weight}
        manifest = type("Manifest", (), {"symmetric": True, "num_nodes": self.num_nodes, "dataset": self.name})()
        manifest.arrays = {k: ArrayEntry(path=f"{k}.npy", dtype=a.dtype.name, shape=a.shape) for k, a in arrays.items()}
        store = GraphStore(Path(), manifest)
        store._open.update(arrays)
        return store


def to_csc(num_nodes: int, src: Array, dst: Array) -> tuple[Array, Array]:
    """Both directions of each edge, sources ascending, parallel edges and loops left out."""
    keep = src != dst
    src, dst = np.concatenate([src[keep], dst[keep]]), np.concatenate([dst[keep], src[keep]])
    bits = max(1, (num_nodes - 1).bit_length())
    keys = np.empty(len(src), np.uint64)
    expand_edges(src, dst, Packing(0, 0, bits, False, False), keys, 0, np.empty(0, np.int32), 0)
    rows, counts, indices, _ = sort_and_compress(keys, np.empty(0, np.int32), bits, True)
    indptr = np.zeros(num_nodes + 1, np.int64)
    indptr[1:][rows] = counts
    return np.cumsum(indptr, out=indptr), indices.astype(np.int32)


def debdeps() -> Graph:
    import pandas as pd

    raw = DATA / "ogb" / "ogbn_debdeps" / "raw"
    edges = pd.read_csv(raw / "edge.csv.gz", header=None).to_numpy(np.int32)
    feat = pd.read_csv(raw / "node-feat.csv.gz", header=None, dtype=np.float32).to_numpy()
    with gzip.open(raw / "num-node-list.csv.gz") as file:
        num_nodes = int(file.read())
    return Graph("debdeps", *to_csc(num_nodes, edges[:, 0], edges[:, 1]), np.ascontiguousarray(feat))


def generated(num_nodes: int, num_edges: int) -> Graph:
    from tasks.ingest.synthetic.generator import make_edges, make_layout

    options = {"name": "synthetic", "num_nodes": num_nodes, "num_edges": num_edges, "num_classes": 47}
    layout = make_layout(DATASETS.config({**options, "feature_dim": 100}))
    src, dst = np.empty(num_edges, np.int32), np.empty(num_edges, np.int32)
    make_edges(0, src, dst, layout)
    feat = np.random.default_rng(1).standard_normal((num_nodes, 100), dtype=np.float32)
    return Graph("generated", *to_csc(num_nodes, src, dst), feat)


@dataclass
class Contender:
    """Makes a batch from seeds; what it returns is freed after it was timed."""

    name: str
    make: Callable[[Array, int], Any]
    milliseconds: list[float] = field(default_factory=list)


@dataclass
class Job:
    """Contenders that do the same; the first is graphmill's, `against` what it is compared with."""

    title: str
    target: float | None
    ours: Contender
    against: Contender

    def round(self, seeds: Array, key: int) -> None:
        contenders = (self.ours, self.against) if key % 2 else (self.against, self.ours)
        for contender in contenders:
            began = time.process_time()
            batch = contender.make(seeds, key)
            contender.milliseconds.append(1e3 * (time.process_time() - began))
            del batch

    def record(self) -> dict[str, Any]:
        ours, theirs = self.ours.milliseconds, self.against.milliseconds
        return {
            "job": self.title,
            "against": self.against.name,
            "ours_ms": statistics.median(ours),
            "against_ms": statistics.median(theirs),
            "ratio": statistics.median(b / a for a, b in zip(ours, theirs, strict=True)),
            "target": self.target,
        }


class Dgl:
    """DGL's samplers on an int64 graph."""

    def __init__(self, graph: Graph) -> None:
        dgl = load_dgl()
        indices = torch.from_numpy(graph.indices.astype(np.int64))
        csc = (torch.from_numpy(graph.indptr), indices, torch.arange(len(indices)))
        self.graph = dgl.graph(("csc", csc), num_nodes=graph.num_nodes)
        self.feat = torch.from_numpy(graph.feat)
        self.sampler = dgl.dataloading.NeighborSampler(list(reversed(FANOUTS)))

    def sample(self, seeds: Array) -> tuple[Any, Any, Any]:
        drawn: tuple[Any, Any, Any] = self.sampler.sample(self.graph, torch.from_numpy(seeds).long())
        return drawn

    def sample_and_gather(self, seeds: Array) -> tuple[Any, Any]:
        inputs, _, blocks = self.sample(seeds)
        return blocks, self.feat[inputs]


class Pyg:
    """PyG's NeighborLoader."""

    def __init__(self, graph: Graph) -> None:
        """Raises ImportError where it cannot run."""
        from torch_geometric.data import Data
        from torch_geometric.loader import NeighborLoader
        from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

        if not (WITH_PYG_LIB or WITH_TORCH_SPARSE):
            raise ImportError("its NeighborLoader needs pyg-lib or torch-sparse")
        backend = "pyg-lib" if WITH_PYG_LIB else "torch-sparse"
        self.name = f"PyG {version('torch_geometric')} ({backend})"
        dst = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
        edges = torch.from_numpy(np.stack([graph.indices.astype(np.int64), dst]))
        data = Data(x=torch.from_numpy(graph.feat), edge_index=edges, num_nodes=graph.num_nodes)
        nodes = torch.arange(graph.num_nodes)
        self.loader = NeighborLoader(data, list(FANOUTS), nodes, batch_size=BATCH_SIZE, is_sorted=True)

    def sample(self, seeds: Array) -> Any:
        from torch_geometric.sampler import NodeSamplerInput

        return self.loader.node_sampler.sample_from_nodes(NodeSamplerInput(None, torch.from_numpy(seeds).long()))

    def sample_and_gather(self, seeds: Array) -> Any:
        return self.loader(torch.from_numpy(seeds).long())


def open_pyg(graph: Graph) -> Pyg | None:
    try:
        return Pyg(graph)
    except ImportError as error:
        print(f"PyG takes no part: {error}")
        return None


def check(graph: Graph, dgl: Dgl, ours: NeighborSampler) -> None:
    """Compare how many nodes and edges batches have."""
    seeds = batch_of_seeds(graph, 0)
    nodes, layers = ours.sample(seeds, 0)
    inputs, _, blocks = dgl.sample(seeds)
    for mine, theirs in (
        (len(nodes), len(inputs)),
        (sum(len(layer.indices) for layer in layers), sum(block.num_edges() for block in blocks)),
    ):
        assert abs(mine / theirs - 1) < 0.05, f"{graph.name}: {mine} against {theirs}"


def batch_of_seeds(graph: Graph, key: int) -> Array:
    rng = np.random.default_rng(key)
    return np.sort(rng.choice(graph.num_nodes, min(BATCH_SIZE, graph.num_nodes), replace=False)).astype(np.int32)


def jobs_of(graph: Graph) -> list[Job]:
    dgl, pyg, store = Dgl(graph), open_pyg(graph), graph.store()
    peer = f"DGL {version('dgl')}"
    jobs = []
    sampler = NeighborSampler(graph.indptr, graph.indices, FANOUTS, positions=False)
    check(graph, dgl, sampler)
    ours = Contender("graphmill", sampler.sample)
    jobs.append(Job("sample", 6.0, ours, Contender(peer, lambda seeds, key: dgl.sample(seeds))))
    if pyg is not None:
        theirs = Contender(pyg.name, lambda seeds, key: pyg.sample(seeds))
        jobs.append(Job("sample", 7.0, Contender("graphmill", ours.make), theirs))
    narrow = FeatureSource(graph.feat, None, dtype=torch.bfloat16)
    kinds: list[tuple[str, float | None, FeatureSource, tuple[int, ...], Any]] = [
        ("sample + gather", None, FeatureSource(graph.feat, None), FANOUTS, "sampled"),
        ("sample + gather + layer-1 mean", 4.0, FeatureSource(graph.feat, None), FANOUTS, "fused"),
        ("same, bfloat16 in memory", None, narrow, FANOUTS, "fused"),
        ("same, mean of all neighbours known", None, FeatureSource(graph.feat, None), (15, 10, -1), "precomputed"),
        ("same, known and bfloat16", None, narrow, (15, 10, -1), "precomputed"),
    ]
    for title, target, features, fanouts, first_hop in kinds:
        around = Neighborhoods(store, features, fanouts, first_hop=first_hop).around

        def make(seeds: Array, key: int, around: Any = around) -> Any:
            return around(seeds, key)

        theirs = Contender(f"{peer} sample + gather", lambda seeds, key: dgl.sample_and_gather(seeds))
        jobs.append(Job(title, target, Contender("graphmill", make), theirs))
        if pyg is not None and first_hop != "precomputed":
            theirs = Contender(f"{pyg.name} sample + gather", lambda seeds, key: pyg.sample_and_gather(seeds))
            jobs.append(Job(title, target, Contender("graphmill", make), theirs))
    return jobs


def machine(threads: int) -> dict[str, Any]:
    """What the figures hold for."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), platform.processor())
    versions = {}
    for package in ("numpy", "numba", "torch", "dgl", "torch_geometric", "pyg_lib"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "none"
    return {"cpu": model, "cores": os.cpu_count(), "threads": threads, "python": platform.python_version(), **versions}


def run(graph: Graph, rounds: int) -> list[dict[str, Any]]:
    records = []
    print(
        f"\n{graph.name}: {graph.num_nodes:,} nodes, {len(graph.indices) // 2:,} undirected edges, {graph.feat.shape}"
    )
    for job in jobs_of(graph):
        for key in range(-2, rounds):
            job.round(batch_of_seeds(graph, key + 2), key + 2)
            if key < 0:  # memory and kernels warm up
                job.ours.milliseconds.clear()
                job.against.milliseconds.clear()
        record = {"graph": graph.name, **job.record()}
        records.append(record)
        target = f"(asked: {job.target:g}x)" if job.target else ""
        print(
            f"{record['job']:<36} {record['ours_ms']:8.2f} ms {record['against_ms']:9.2f} ms {record['ratio']:6.1f}x "
            f"{target:<12} {record['against']}",
            flush=True,
        )
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", default="debdeps,generated", help="comma-separated")
    parser.add_argument("--large", action="store_true", help="generate 1.2 M nodes and 27 M undirected edges")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1, help="of torch and DGL; graphmill makes a batch on one")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    use_threads(options.threads)
    warnings.filterwarnings("ignore", category=UserWarning)  # torch's, on sparse tensors and read-only arrays
    facts = machine(options.threads)
    print(json.dumps(facts))
    records = []
    for name in options.graphs.split(","):
        if name == "debdeps" and not DATA.is_dir():
            print(f"no {DATA}: debdeps is left out")
            continue
        graph = debdeps() if name == "debdeps" else generated(*(LARGE if options.large else SMALL))
        records += run(graph, options.rounds)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "sampling.json").write_text(json.dumps({"machine": facts, "records": records}, indent=1))
    missed = [f"{r['graph']} {r['job']}" for r in records if r["target"] and r["ratio"] < r["target"]]
    print("\nevery figure asked for is reached" if not missed else f"\nbelow what was asked: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
