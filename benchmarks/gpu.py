"""How fast a GNN trains on a GPU, stage by stage, and how far from what the GPU can do.

    python -m benchmarks.gpu [--parts roofs,stages,steps,operators] [--nodes 1200000] [--edges 27650000] [--device cuda]

Not yet run on a GPU. The graph is generated (GraphSAGE, 3 x 256, fan-out 15, 10, 5, batches of 1024). `roofs`: what the
device can do at most: copies, products of matrices by precision, uploads. `stages`: milliseconds of a step by stage,
one after the other, and how often the CPU waits for the GPU in it (torch's own count), and where. `steps`: milliseconds
of whole steps by sampling threads and precision, with sampling on the GPU and with recorded steps, medians of rounds;
against PyG's loader and layers where PyG can sample. `operators`: the sum over the whole graph,
forward and backward, against torch.sparse (cuSPARSE) and PyG, and as a share of the copy bandwidth. Neither Prefect
nor MLflow, DGL, OGB or METIS is needed. Figures go to benchmarks/results/gpu.json too, each as it comes; one that fails
costs itself only.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.gnn_graphs import prepare
from benchmarks.gnn_report import machine, print_machine
from benchmarks.gnn_torch import copy_bandwidth
from benchmarks.gnn_worker import Settings
from benchmarks.gpu_sides import Ours, Pyg
from benchmarks.items import Items, add_options, check_parts, run_items
from configs.load import build_recipe
from configs.schema import Recipe
from models.kernels.backends import has_triton, take_triton
from tasks.storage.home import Home

RESULTS = Path(__file__).parent / "results"
PARTS = ("roofs", "stages", "steps", "operators")
PRECISIONS = ("float32", "tf32", "bfloat16")


def make_recipe(args: argparse.Namespace, *overrides: str) -> Recipe:
    sizes = {"num_nodes": args.nodes, "num_edges": args.edges, "feature_dim": args.features, "num_classes": 47}
    shares = {"feature_accuracy": 0.12, "community_size": 1000, "valid_share": 0.02, "test_share": 0.9}
    loader = {"name": "neighbor", "fanout": args.fanout, "batch_size": args.batch_size}
    values = {
        "name": "gpu",
        "dataset": {"name": "synthetic", **sizes, **shares},
        "partition": {"name": "none", "num_parts": 1},
        "model": {"name": "graphsage", "hidden_dim": args.hidden, "num_layers": 3, "norm": "none"},
        "train": {"loader": loader, "epochs": 100_000, "device": args.device},
    }
    return build_recipe(values, list(overrides))


def seconds_of(run: Callable[[], Any], device: str, rounds: int = 10) -> float:
    """The median of rounds, after one that compiles."""
    run()
    found = []
    for _ in range(rounds):
        wait(device)
        began = time.perf_counter()
        run()
        wait(device)
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def roofs(args: argparse.Namespace) -> dict[str, Callable[[], float]]:
    """GB/s and TFLOP/s."""
    size = 1 << (30 if args.device == "cuda" else 22)

    def upload() -> float:
        host = torch.empty(size // 4, dtype=torch.uint8, pin_memory=args.device == "cuda")
        there = torch.empty_like(host, device=args.device, pin_memory=False)
        return host.nbytes / seconds_of(lambda: there.copy_(host, non_blocking=True), args.device) / 1e9

    def product(dtype: torch.dtype, products: str) -> float:
        torch.set_float32_matmul_precision(products)
        x = torch.randn(128 * args.batch_size, 2 * args.hidden, device=args.device).to(dtype)
        weight = torch.randn(2 * args.hidden, args.hidden, device=args.device).to(dtype)
        seconds = seconds_of(lambda: x @ weight, args.device)
        torch.set_float32_matmul_precision("highest")
        return 2 * x.numel() * args.hidden / seconds / 1e12

    return {
        "copy, GB/s": lambda: copy_bandwidth(args.device, size)["bytes_per_second"] / 1e9,
        "upload, GB/s": upload,
        "product of a layer in float32, TFLOP/s": lambda: product(torch.float32, "highest"),
        "product of a layer in tf32, TFLOP/s": lambda: product(torch.float32, "high"),
        "product of a layer in bfloat16, TFLOP/s": lambda: product(torch.bfloat16, "highest"),
    }


def variants(args: argparse.Namespace, threads: tuple[int, ...]) -> dict[str, list[str]]:
    """Overrides by name: where batches are made, by precision; and once each what determinism costs."""
    on_gpu = args.device == "cuda"
    found = {}
    for precision in PRECISIONS if on_gpu else (PRECISIONS[0], PRECISIONS[-1]):
        base = [f"train.precision={precision}", "train.threads=1"]
        for count in threads:
            more = [f"train.sampling_threads={count}", f"train.prefetch={2 * count}"]
            found[f"{precision}, {count} sampling thread(s)"] = base + more
        if on_gpu:
            resident = [*base, "train.sampling=device", "train.kernels=triton"]
            found[f"{precision}, sampled on the GPU"] = resident
            found[f"{precision}, not deterministic"] = [*resident, "train.deterministic=false"]
    return found


def steps(args: argparse.Namespace, make: Callable[[], Any]) -> float:
    """Milliseconds of a step."""
    side = make()
    times = [side.steps(args.steps) for _ in range(args.rounds + 1)]
    side.close()
    return statistics.median(times[1:])


def operator(args: argparse.Namespace, folder: Path, name: str, dtype: str) -> dict[str, float]:
    """Milliseconds of a sum over all in-edges, forward and backward, and the share of the copy bandwidth."""
    from benchmarks.gnn_ours import Aggregation, moved_bytes, whole_adjacency
    from benchmarks.gnn_torch import PygAggregation, TorchSparse
    from benchmarks.gnn_worker import Arrays

    kinds = {"graphmill": Aggregation, "Triton": Aggregation, "torch.sparse": TorchSparse, "PyG": PygAggregation}
    roof = copy_bandwidth(args.device, 1 << (30 if args.device == "cuda" else 22))["bytes_per_second"]
    size = moved_bytes(whole_adjacency(Arrays(str(folder)), args.device), args.hidden, getattr(torch, dtype).itemsize)
    take_triton(name == "Triton")
    try:
        options = {"width": args.hidden, "dtype": dtype}
        side = kinds[name](Settings(graph=str(folder), threads=1, device=args.device, options=options))
        seconds = seconds_of(lambda: side.jobs["aggregate"](1), args.device, args.rounds)
    finally:
        take_triton(False)
    return {"ms": 1000 * seconds, "share of copy": size / seconds / roof}


def all_items(args: argparse.Namespace, folder: Path, device: torch.device) -> Items:
    """What is measured, by part and name."""

    def ours(name: str, overrides: list[str]) -> Ours:
        return Ours(make_recipe(args, *overrides), folder, args.out / "gpu" / name, device)

    items: Items = {("roofs", name): run for name, run in roofs(args).items()}
    for name, overrides in variants(args, threads=(1,)).items():
        items["stages", name] = lambda name=name, more=overrides: ours(name, more).stages(args.steps)
    for name, overrides in variants(args, args.threads).items():
        items["steps", name] = lambda name=name, more=overrides: steps(args, lambda: ours(name, more))
    workers = max(args.threads) if device.type == "cuda" else 0
    items["steps", f"PyG, {workers} worker(s)"] = lambda: steps(
        args, lambda: Pyg(make_recipe(args), folder, device, workers)
    )
    with_triton = ("Triton",) if args.device == "cuda" and has_triton() else ()
    for dtype, peers in (("float32", ("torch.sparse", "PyG")), ("bfloat16", ("torch.sparse",))):
        for name in ("graphmill", *with_triton, *peers):
            items["operators", f"{name}, {dtype}"] = lambda name=name, dtype=dtype: operator(args, folder, name, dtype)
    return items


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser, PARTS, limit=90)
    parser.add_argument("--nodes", type=int, default=1_200_000)
    parser.add_argument("--edges", type=int, default=27_650_000)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--fanout", default="15,10,5")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--threads", type=lambda text: tuple(map(int, text.split(","))), default=(1, 4, 8, 14))
    parser.add_argument("--steps", type=int, default=30, help="of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help="cpu: to try the benchmark itself")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--home", type=Path, default=RESULTS / "home", help="where the prepared graph is kept")
    args = parser.parse_args(arguments)
    check_parts(parser, args, PARTS)
    head = {"machine": machine(), "options": {name: str(value) for name, value in vars(args).items()}}
    if args.answers is None:
        if args.device == "cuda":
            head["machine"]["gpu"] = torch.cuda.get_device_name()
        print_machine(head["machine"])
    device = torch.device(args.device, 0) if args.device == "cuda" else torch.device("cpu")
    folder = prepare(make_recipe(args), Home.open(args.home))
    items = all_items(args, folder, device)
    return run_items("benchmarks.gpu", arguments, args, items, args.out / "gpu.json", head)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
