"""How fast a GNN trains on a GPU, stage by stage, and how far from what the GPU can do.

    python -m benchmarks.gpu [--parts roofs,stages,steps,operators] [--nodes 1200000] [--edges 27650000] [--device cuda]

Not yet run on a GPU. The graph is generated (GraphSAGE, 3 x 256, fan-out 15, 10, 5, batches of 1024). `roofs`: what the
device can do at most: copies, products of matrices by precision, uploads. `stages`: milliseconds of a step by stage,
one after the other, and how often the CPU waits for the GPU in it (torch's own count), and where. `steps`: milliseconds
of whole steps by sampling threads and precision, with sampling on the GPU and with recorded steps, variants in turn,
medians of rounds; against PyG's loader and layers where PyG can sample. `operators`: the sum over the whole graph,
forward and backward, against torch.sparse (cuSPARSE) and PyG, and as a share of the copy bandwidth. Neither Prefect
nor MLflow, DGL, OGB or METIS is needed. Figures go to benchmarks/results/gpu.json too.
"""

from __future__ import annotations

import argparse
import json
import statistics
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
from configs.load import build_recipe
from configs.schema import Recipe
from models.kernels.backends import has_triton, take_triton
from tasks.storage.artifacts import write_atomic
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


def measure_roofs(args: argparse.Namespace) -> dict[str, float]:
    """GB/s and TFLOP/s."""
    size = 1 << (30 if args.device == "cuda" else 22)
    found = {"copy, GB/s": copy_bandwidth(args.device, size)["bytes_per_second"] / 1e9}
    host = torch.empty(size // 4, dtype=torch.uint8, pin_memory=args.device == "cuda")
    there = torch.empty_like(host, device=args.device, pin_memory=False)
    upload = seconds_of(lambda: there.copy_(host, non_blocking=True), args.device)
    found["upload, GB/s"] = host.nbytes / upload / 1e9
    rows = 128 * args.batch_size
    for name, dtype, products in (
        ("float32", torch.float32, "highest"),
        ("tf32", torch.float32, "high"),
        ("bfloat16", torch.bfloat16, "highest"),
    ):
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(products)
        x = torch.randn(rows, 2 * args.hidden, device=args.device).to(dtype)
        weight = torch.randn(2 * args.hidden, args.hidden, device=args.device).to(dtype)
        seconds = seconds_of(lambda x=x, weight=weight: x @ weight, args.device)
        found[f"product of a layer in {name}, TFLOP/s"] = 2 * x.numel() * args.hidden / seconds / 1e12
        torch.set_float32_matmul_precision(before)
    return found


def measure_stages(args: argparse.Namespace, folder: Path, device: torch.device) -> dict[str, Any]:
    """Of steps that are launched one by one: a recorded one has no stages."""
    found = {}
    for name, overrides in variants(args, threads=(1,)).items():
        if "train.cuda_graph=true" not in overrides:
            side = Ours(make_recipe(args, *overrides), folder, args.out / "gpu" / name, device)
            found[name] = side.stages(args.steps)
    return found


def variants(args: argparse.Namespace, threads: tuple[int, ...]) -> dict[str, list[str]]:
    """Overrides by name: where batches are made, by precision; and once each what determinism and recording cost."""
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
            found[f"{precision}, recorded"] = [*resident, "train.cuda_graph=true"]
            found[f"{precision}, recorded, not deterministic"] = [
                *(*resident, "train.cuda_graph=true"),
                "train.deterministic=false",
            ]
    return found


def measure_steps(args: argparse.Namespace, folder: Path, device: torch.device) -> dict[str, float]:
    """Milliseconds of a step, all variants in turn."""
    sides: dict[str, Any] = {}
    for name, overrides in variants(args, args.threads).items():
        sides[name] = Ours(make_recipe(args, *overrides), folder, args.out / "gpu" / name, device)
    try:
        workers = max(args.threads) if device.type == "cuda" else 0
        sides[f"PyG, {workers} worker(s)"] = Pyg(make_recipe(args), folder, device, workers)
    except ImportError as error:
        print(f"PyG left out: {error}", flush=True)
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(args.rounds + 1):
        for name, side in list(sides.items()):
            try:
                times[name].append(side.steps(args.steps))
            except ImportError as error:  # PyG asks for its samplers when it samples first
                print(f"{name} left out: {error}", flush=True)
                del sides[name], times[name]
    for side in sides.values():
        side.close()
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def measure_operators(args: argparse.Namespace, folder: Path) -> dict[str, dict[str, float]]:
    """Milliseconds of a sum over all in-edges, forward and backward, and the share of the copy bandwidth."""
    from benchmarks.gnn_ours import Aggregation, moved_bytes, whole_adjacency
    from benchmarks.gnn_torch import PygAggregation, TorchSparse
    from benchmarks.gnn_worker import Arrays

    roof = copy_bandwidth(args.device, 1 << (30 if args.device == "cuda" else 22))["bytes_per_second"]
    adjacency, found = whole_adjacency(Arrays(str(folder)), args.device), {}
    for dtype in ("float32", "bfloat16"):
        sides = (
            ("graphmill", Aggregation),
            ("Triton", Aggregation),
            ("torch.sparse", TorchSparse),
            ("PyG", PygAggregation),
        )
        for name, kind in sides:
            if name == "PyG" and dtype == "bfloat16":
                continue
            options = {"width": args.hidden, "dtype": dtype}
            if name == "Triton" and not (args.device == "cuda" and has_triton()):
                continue
            take_triton(name == "Triton")
            try:
                side = kind(Settings(graph=str(folder), threads=1, device=args.device, options=options))
                seconds = seconds_of(lambda side=side: side.jobs["aggregate"](1), args.device, args.rounds)
            except (ImportError, NotImplementedError, torch.OutOfMemoryError) as error:
                print(f"{name} left out: {error}", flush=True)
                continue
            size = moved_bytes(adjacency, args.hidden, getattr(torch, dtype).itemsize)
            found[f"{name}, {dtype}"] = {"ms": 1000 * seconds, "share of copy": size / seconds / roof}
            del side
    take_triton(False)
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS))
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
    unknown = set(args.parts) - set(PARTS)
    if unknown:
        parser.error(f"--parts: {', '.join(sorted(unknown))} is none of {', '.join(PARTS)}")
    facts = machine()
    if args.device == "cuda":
        facts["gpu"] = torch.cuda.get_device_name()
    print_machine(facts)
    device = torch.device(args.device, 0) if args.device == "cuda" else torch.device("cpu")
    folder = prepare(make_recipe(args), Home.open(args.home))
    results: dict[str, Any] = {}
    measures: dict[str, Callable[[], Any]] = {
        "roofs": lambda: measure_roofs(args),
        "stages": lambda: measure_stages(args, folder, device),
        "steps": lambda: measure_steps(args, folder, device),
        "operators": lambda: measure_operators(args, folder),
    }
    for part in args.parts:
        results[part] = measures[part]()
        for name, value in results[part].items():
            print(f"{part}: {name}: {shown(value)}", flush=True)
        # Written after each part: a command that is cut off leaves what it has.
        options = {name: str(value) for name, value in vars(args).items()}
        text = json.dumps({"machine": facts, "options": options, **results}, indent=1)
        write_atomic(args.out / "gpu.json", text.encode())


def shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {shown(item)}" for name, item in value.items())
    return f"{value:,.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
