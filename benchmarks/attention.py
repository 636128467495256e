"""Fused attention and message kernels against DGL's operators and against plain torch: CPU time and peak memory.

    python benchmarks/attention.py [--ops gat,gatv2,softmax] [--shapes 4x32,8x8] [--repeats 7] [--threads 2] [--small]

One layer's aggregation, forward and backward, on a synthetic graph of 169,343 nodes and 2.2 M edges in both directions.
Each contender is a process of its own, so that its peak memory is its own: what one forward and backward add to the
inputs (high-water mark of the resident set, after the graph's formats and a warm-up on a small graph). They take turns,
so that a slow minute of the machine hits all alike; the table shows medians over the repeats. One that dies, for want
of memory most likely (DGL's softmax takes 12 GB at 4x32), is told of and left out.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from benchmarks.partition import status, synthetic  # noqa: E402
from models.dgl.adapter import load_dgl  # noqa: E402
from models.kernels.attention.attention import (  # noqa: E402
    gat_attention,
    gatv2_attention,
    reference_gat_attention,
    reference_gatv2_attention,
)
from models.kernels.sparse.adjacency import Adjacency  # noqa: E402
from models.kernels.sparse.message import reference_softmax_aggregate, softmax_aggregate  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
SLOPE = 0.2
FUSED = {"gat": gat_attention, "gatv2": gatv2_attention, "softmax": softmax_aggregate}
UNFUSED = {
    "gat": reference_gat_attention,
    "gatv2": reference_gatv2_attention,
    "softmax": reference_softmax_aggregate,
}
CONTENDERS = ("fused", "fused-bf16", "dgl", "unfused")


def load_graph(small: bool) -> tuple[Tensor, Tensor]:
    """Return indptr and indices, made once."""
    path = RESULTS / ("attention-small.npz" if small else "attention-graph.npz")
    if not path.exists():
        matrix = synthetic(*((20_000, 60_000) if small else (169_343, 1_240_000)))
        RESULTS.mkdir(parents=True, exist_ok=True)
        np.savez(path, indptr=matrix.indptr.astype(np.int64), indices=matrix.indices.astype(np.int32))
    arrays = np.load(path)
    return torch.from_numpy(arrays["indptr"]), torch.from_numpy(arrays["indices"])


def make_inputs(op: str, num_nodes: int, heads: int, dim: int) -> list[Tensor]:
    """Return the differentiable inputs of an operator."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    if op == "gat":
        return [normal(num_nodes, heads, dim), normal(num_nodes, heads), normal(num_nodes, heads)]
    if op == "gatv2":
        return [normal(num_nodes, heads, dim), normal(num_nodes, heads, dim), normal(heads, dim)]
    return [normal(num_nodes, heads * dim), torch.tensor(1.0)]


def dgl_operator(op: str, indptr: Tensor, indices: Tensor) -> Callable[..., Tensor]:
    """Return what dgl.nn.GATConv, GATv2Conv and the GENConv of DGL's examples do after their linear layers."""
    dgl = load_dgl()
    import dgl.function as fn
    from dgl.nn.functional import edge_softmax

    rows = torch.repeat_interleave(indptr[1:] - indptr[:-1])
    graph = dgl.graph((indices.long(), rows), num_nodes=len(indptr) - 1)
    graph.create_formats_()

    def gat(x: Tensor, score_src: Tensor, score_dst: Tensor) -> Tensor:
        with graph.local_scope():
            graph.srcdata.update({"ft": x, "el": score_src.unsqueeze(2)})
            graph.dstdata["er"] = score_dst.unsqueeze(2)
            graph.apply_edges(fn.u_add_v("el", "er", "e"))
            graph.edata["a"] = edge_softmax(graph, F.leaky_relu(graph.edata.pop("e"), SLOPE))
            graph.update_all(fn.u_mul_e("ft", "a", "m"), fn.sum("m", "ft"))
            return graph.dstdata["ft"]

    def gatv2(x_src: Tensor, x_dst: Tensor, attn: Tensor) -> Tensor:
        with graph.local_scope():
            graph.srcdata["el"], graph.dstdata["er"] = x_src, x_dst
            graph.apply_edges(fn.u_add_v("el", "er", "e"))
            scores = (F.leaky_relu(graph.edata.pop("e"), SLOPE) * attn).sum(dim=-1).unsqueeze(2)
            graph.edata["a"] = edge_softmax(graph, scores)
            graph.update_all(fn.u_mul_e("el", "a", "m"), fn.sum("m", "ft"))
            return graph.dstdata["ft"]

    def softmax(x: Tensor, beta: Tensor) -> Tensor:
        with graph.local_scope():
            graph.ndata["h"] = x
            graph.apply_edges(fn.copy_u("h", "m"))
            messages = F.relu(graph.edata["m"]) + 1e-7
            graph.edata["w"] = messages * edge_softmax(graph, messages * beta)
            graph.update_all(fn.copy_e("w", "w"), fn.sum("w", "y"))
            return graph.ndata["y"]

    return {"gat": gat, "gatv2": gatv2, "softmax": softmax}[op]


def make_operator(op: str, contender: str, small: bool) -> tuple[Callable[..., Tensor], int]:
    indptr, indices = load_graph(small)
    num_nodes = len(indptr) - 1
    if contender == "dgl":
        return dgl_operator(op, indptr, indices), num_nodes
    adj = Adjacency(indptr, indices, num_nodes)
    adj.transpose()
    operator: Any = (UNFUSED if contender == "unfused" else FUSED)[op]
    return lambda *inputs: operator(adj, *inputs), num_nodes


class Child:
    """A contender in its own process: does one forward and backward for each line that it reads."""

    def __init__(self, op: str, heads: int, dim: int, contender: str, small: bool) -> None:
        dtype = torch.bfloat16 if contender == "fused-bf16" else torch.float32
        for size in (True, small):
            self.operator, num_nodes = make_operator(op, contender, size)
            self.inputs = [
                tensor.to(dtype if tensor.dim() > 1 else torch.float32)
                for tensor in make_inputs(op, num_nodes, heads, dim)
            ]
            shape = (num_nodes, heads * dim) if op == "softmax" else (num_nodes, heads, dim)
            self.grad = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
            if size:  # the small graph, first: compiles or loads the kernels
                self.run()

    def run(self) -> dict[str, float]:
        inputs = [tensor.detach().requires_grad_() for tensor in self.inputs]
        Path("/proc/self/clear_refs").write_text("5")
        before, start = status("VmRSS"), time.process_time()
        y = self.operator(*inputs)
        middle = time.process_time()
        y.backward(self.grad)
        end = time.process_time()
        return {"forward": middle - start, "backward": end - middle, "peak_bytes": status("VmHWM") - before}


def serve(text: str) -> None:
    settings = json.loads(text)
    torch.set_num_threads(settings["threads"])
    if settings["contender"] == "dgl":
        load_dgl().utils.set_num_threads(settings["threads"])
    child = Child(*(settings[name] for name in ("op", "heads", "dim", "contender", "small")))
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(child.run()), flush=True)


def start(op: str, heads: int, dim: int, contender: str, args: argparse.Namespace) -> subprocess.Popen[str]:
    settings = {"op": op, "heads": heads, "dim": dim, "contender": contender}
    settings |= {"small": args.small, "threads": args.threads}
    command = [sys.executable, __file__, "--serve", json.dumps(settings)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def measure(op: str, heads: int, dim: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Start all contenders, give them turns, return the medians."""
    children: dict[str, subprocess.Popen[str]] = {}
    runs: dict[str, list[dict[str, float]]] = {}
    for contender in args.contenders.split(","):
        children[contender], runs[contender] = start(op, heads, dim, contender, args), []
        read(children[contender])
    for _ in range(args.repeats):
        for contender, child in list(children.items()):
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
            try:
                runs[contender].append(json.loads(read(child)))
            except ChildProcessError as error:
                print(f"{op} {heads}x{dim} {contender} is left out: {error}", flush=True)
                del children[contender], runs[contender]
    for child in children.values():
        child.communicate()
    return [
        {"op": op, "heads": heads, "dim": dim, "contender": contender}
        | {name: statistics.median(run[name] for run in found) for name in ("forward", "backward")}
        | {"peak_bytes": max(run["peak_bytes"] for run in found)}  # the first run's: later ones find memory kept
        for contender, found in runs.items()
    ]


def read(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise ChildProcessError(f"it ended with status {child.wait()}")
    return line


def machine(threads: int) -> str:
    names = ("torch", "dgl", "numba", "numpy")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    lines = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = lines[0].split(":")[1].strip() if lines else platform.machine()
    return f"{model}, {os.cpu_count()} cores, {threads} threads, Python {platform.python_version()}, {versions}"


def print_table(records: list[dict[str, Any]]) -> None:
    base = next((record for record in records if record["contender"] == "dgl"), records[0])
    for record in records:
        seconds, peak = (record["forward"] + record["backward"], record["peak_bytes"])
        print(
            f"{record['op']:8} {record['heads']}x{record['dim']:<4} {record['contender']:11} "
            f"forward {1e3 * record['forward']:8.1f} backward {1e3 * record['backward']:8.1f} CPU ms "
            f"({(base['forward'] + base['backward']) / seconds:5.1f}x {base['contender']}) "
            f"peak {peak / 1e6:7.0f} MB ({peak / base['peak_bytes']:5.2f}x)",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default=",".join(FUSED))
    parser.add_argument("--shapes", default="4x32,8x8", help="heads x columns of a head")
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="a graph of 20,000 nodes")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve)
        return
    load_graph(args.small)
    print(machine(args.threads), flush=True)
    records = []
    for op in args.ops.split(","):
        for shape in args.shapes.split(","):
            heads, dim = (int(number) for number in shape.split("x"))
            records += (found := measure(op, heads, dim, args))
            print_table(found)
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S")
    path = RESULTS / f"attention-{stamp}.json"
    path.write_text(json.dumps({"machine": machine(args.threads), "runs": records}, indent=1))
    print(f"written to {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
