"""Sparse, attention and dense kernels against DGL's fused ones and against plain torch: CPU time and peak memory.

    python benchmarks/kernels.py [--ops sum,max,sddmm] [--dims 100,128,256] [--nodes 169343] [--draws 1240000]
        [--threads 1] [--repeats 9] [--malloc tuned,stock] [--order given,parts] [--memory]

Forward and backward on a synthetic graph with power-law degrees and planted communities, its nodes numbered at random.
All contenders run in turn in one process, so that a slow minute of the machine hits all alike; ratios are medians over
rounds of each round's ratio to the first contender. `tuned` malloc is what graphmill's workers run with: memory is kept
and given to the next result; with `stock` every large result is made of fresh pages. `--order parts` numbers nodes by
the parts of graphmill's own partitioner first. `--memory` runs each contender alone and reports what one forward and
backward add to the inputs at their peak.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from benchmarks.gnn_report import machine, print_machine  # noqa: E402
from benchmarks.partition import status, synthetic  # noqa: E402
from models.dgl.adapter import load_dgl, make_handle, use_threads  # noqa: E402
from models.kernels.attention.attention import (  # noqa: E402
    gat_attention,
    gatv2_attention,
    reference_gat_attention,
    reference_gatv2_attention,
)
from models.kernels.dense.dropout import relu_dropout  # noqa: E402
from models.kernels.dense.linear import linear  # noqa: E402
from models.kernels.sparse.adjacency import Adjacency  # noqa: E402
from models.kernels.sparse.edge_softmax import edge_softmax, reference_edge_softmax  # noqa: E402
from models.kernels.sparse.message import reference_softmax_aggregate, softmax_aggregate  # noqa: E402
from models.kernels.sparse.segment import segment_reduce  # noqa: E402
from models.kernels.sparse.spmm import reference_sddmm, reference_weighted_sum, sddmm, weighted_sum  # noqa: E402
from models.kernels.sparse.spmm_max import max_rows, reference_max  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
MALLOC = {"tuned": {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}, "stock": {}}
ATTENTION: dict[str, tuple[Any, Any]] = {
    "gat": (gat_attention, reference_gat_attention),
    "gatv2": (gatv2_attention, reference_gatv2_attention),
    "genconv": (softmax_aggregate, reference_softmax_aggregate),
}
GRAPH_OPS = ("sum", "mean", "max", "weighted", "sddmm", "softmax", *ATTENTION)
DENSE_OPS = ("linear", "dropout", "segment-mean", "segment-max")
ALONE = ("dgl", "ours", "ours-bf16", "torch")
"""Whose memory is measured."""
ROWS = 60_000
"""Rows of the dense operations: a batch's."""
HEADS = 8
Step = Callable[[], None]


def load_graph(nodes: int, draws: int, order: str) -> Adjacency:
    """Return the graph, made once."""
    path = RESULTS / f"kernels-{nodes}-{draws}-{order}.npz"
    if not path.exists():
        RESULTS.mkdir(parents=True, exist_ok=True)
        if order == "given":
            matrix = synthetic(nodes, draws)
        else:
            given = load_graph(nodes, draws, "given")
            matrix = by_parts(given.indptr.numpy(), given.indices.numpy())
        np.savez(path, indptr=matrix.indptr.astype(np.int64), indices=matrix.indices.astype(np.int32))
    arrays = np.load(path)
    return Adjacency(torch.from_numpy(arrays["indptr"]), torch.from_numpy(arrays["indices"]), nodes, symmetric=True)


def by_parts(indptr: np.ndarray, indices: np.ndarray) -> Any:
    """Number the nodes by parts of about 4,000 nodes, largest in-degree first within each."""
    import scipy.sparse as sp

    from configs.registry import PARTITIONERS
    from tasks.partition.base import Csr, PartitionContext

    nodes = len(indptr) - 1
    config = PARTITIONERS.config({"name": "coarsened", "num_parts": max(nodes // 4000, 2), "seed": 1})
    part = PARTITIONERS.create(config).partition(
        Csr(indptr, indices), max(nodes // 4000, 2), PartitionContext(scratch=RESULTS)
    )
    order = np.lexsort((-np.diff(indptr), part))
    matrix = sp.csr_matrix((np.ones(len(indices), np.int8), indices, indptr), shape=(nodes, nodes))[order][:, order]
    matrix.sort_indices()
    return matrix


def step(run: Callable[..., Tensor], *inputs: Tensor) -> Step:
    """Return one forward and backward; the gradient of the result is made once."""
    inputs = tuple(value.detach().requires_grad_(value.is_floating_point()) for value in inputs)
    change = torch.ones_like(run(*inputs).detach())

    def do() -> None:
        y = run(*inputs)
        torch.autograd.grad(y, [value for value in inputs if value.requires_grad], change)

    return do


def dgl_attention(op: str, ops: Any, graph: Any, *inputs: Tensor) -> Tensor:
    """What dgl.nn.GATConv, GATv2Conv and the GENConv of DGL's examples do after their linear layers."""
    if op == "gat":
        x, score_src, score_dst = inputs
        scores = F.leaky_relu(ops.u_add_v(graph, score_src.unsqueeze(2), score_dst.unsqueeze(2)), 0.2)
        return ops.u_mul_e_sum(graph, x, ops.edge_softmax(graph, scores))
    if op == "gatv2":
        x_src, x_dst, attn = inputs
        scores = (F.leaky_relu(ops.u_add_v(graph, x_src, x_dst), 0.2) * attn).sum(dim=-1).unsqueeze(2)
        return ops.u_mul_e_sum(graph, x_src, ops.edge_softmax(graph, scores))
    x, beta = inputs
    messages = F.relu(ops.copy_u(graph, x)) + 1e-7
    return ops.copy_e_sum(graph, messages * ops.edge_softmax(graph, messages * beta))


def graph_contenders(op: str, adj: Adjacency, dim: int) -> Iterator[tuple[str, Callable[[], Step]]]:
    """Yield contenders by name, DGL first; each is made when it is asked for."""
    nodes, edges = adj.num_src, adj.num_edges
    ops = load_dgl().ops

    def dgl(run: Callable[..., Tensor], *inputs: Tensor) -> Step:
        handle = make_handle(adj.indptr, adj.indices.long(), nodes)
        handle.create_formats_()
        return step(lambda *inputs: run(handle, *inputs), *inputs)

    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    if op in ("sum", "mean", "max"):
        x = normal(nodes, dim)
        yield "dgl", lambda: dgl(getattr(ops, f"copy_u_{op}"), x)
        scale = adj.degree_scale() if op == "mean" else None

        def ours(x: Tensor) -> Tensor:
            return max_rows(adj, x) if op == "max" else weighted_sum(adj, x, target_scale=scale)

        def plain(x: Tensor) -> Tensor:
            y = reference_max(adj, x) if op == "max" else reference_weighted_sum(adj, x)
            return y if scale is None else y * scale.unsqueeze(1)

        yield "ours", lambda: step(ours, x)
        yield "ours-bf16", lambda: step(ours, x.bfloat16())
        yield "torch", lambda: step(plain, x)
    elif op == "weighted":
        x, w = normal(nodes, dim), normal(edges)
        yield "dgl", lambda: dgl(lambda h, x, w: ops.u_mul_e_sum(h, x, w.unsqueeze(1)), x, w)
        yield "ours", lambda: step(lambda x, w: weighted_sum(adj, x, w), x, w)
        yield "ours-bf16", lambda: step(lambda x, w: weighted_sum(adj, x, w), x.bfloat16(), w)
        yield "torch", lambda: step(lambda x, w: reference_weighted_sum(adj, x, w), x, w)
    elif op == "sddmm":
        x, z = normal(nodes, 1, dim), normal(nodes, 1, dim)
        yield "dgl", lambda: dgl(ops.u_dot_v, x, z)
        yield "ours", lambda: step(lambda x, z: sddmm(adj, x, z), x, z)
        yield "ours-bf16", lambda: step(lambda x, z: sddmm(adj, x, z), x.bfloat16(), z.bfloat16())
        yield "torch", lambda: step(lambda x, z: reference_sddmm(adj, x, z), x, z)
    elif op in ATTENTION:
        fused, plain_attention = ATTENTION[op]
        heads, scores = (nodes, HEADS, max(1, dim // HEADS)), (nodes, HEADS)
        shapes = {"gat": (heads, scores, scores), "gatv2": (heads, heads, heads[1:]), "genconv": ((nodes, dim), ())}
        made = [normal(*shape) for shape in shapes[op]]
        yield "dgl", lambda: dgl(partial(dgl_attention, op, ops), *made)
        yield "ours", lambda: step(partial(fused, adj), *made)
        half = [value.bfloat16() if value.dim() > 1 else value for value in made]
        yield "ours-bf16", lambda: step(partial(fused, adj), *half)
        yield "torch", lambda: step(partial(plain_attention, adj), *made)
    else:
        s = normal(edges, HEADS)
        yield "dgl", lambda: dgl(ops.edge_softmax, s)
        yield "ours", lambda: step(lambda s: edge_softmax(adj, s), s)
        yield "ours-bf16", lambda: step(lambda s: edge_softmax(adj, s), s.bfloat16())
        yield "torch", lambda: step(lambda s: reference_edge_softmax(adj, s), s)


def dense_contenders(op: str, dim: int) -> Iterator[tuple[str, Callable[[], Step]]]:
    """Yield contenders by name, torch first."""
    x, weight, bias = torch.randn(ROWS, dim), torch.randn(256, dim), torch.randn(256)
    offsets = torch.arange(0, ROWS + 1, 25)
    if op == "linear":
        yield "torch", lambda: step(F.linear, x, weight, bias)
        yield "ours", lambda: step(linear, x, weight, bias)
        low = (x.bfloat16(), weight.bfloat16(), bias.bfloat16())
        yield "bf16", lambda: step(F.linear, *low)
    elif op == "dropout":
        yield "torch", lambda: step(lambda x: F.dropout(F.relu(x), 0.5), x)
        yield "ours", lambda: step(lambda x: relu_dropout(x, 0.5), x)
        yield "ours-bf16", lambda: step(lambda x: relu_dropout(x, 0.5), x.bfloat16())
    else:
        kind = op.removeprefix("segment-")
        yield "torch", lambda: step(lambda x: torch.segment_reduce(x, kind, offsets=offsets, axis=0), x)
        yield "ours", lambda: step(lambda x: segment_reduce(x, offsets, kind), x)
        yield "ours-bf16", lambda: step(lambda x: segment_reduce(x, offsets, kind), x.bfloat16())


def contenders(op: str, dim: int, args: argparse.Namespace, order: str) -> dict[str, Callable[[], Step]]:
    if op in DENSE_OPS:
        return dict(dense_contenders(op, dim))
    return dict(graph_contenders(op, load_graph(args.nodes, args.draws, order), dim))


def compare(op: str, dim: int, args: argparse.Namespace, order: str) -> dict[str, Any]:
    """Run the contenders in turn; returns milliseconds and ratios to the first."""
    steps = {name: make() for name, make in contenders(op, dim, args, order).items()}
    if not args.torch and op in GRAPH_OPS:
        steps.pop("torch")
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(args.repeats + 1):
        for name, do in steps.items():
            start = time.process_time()
            do()
            if number:  # the first round compiles
                times[name].append(time.process_time() - start)
    first = next(iter(times.values()))
    return {
        name: {
            "milliseconds": 1000 * statistics.median(taken),
            "ratio": statistics.median(a / b for a, b in zip(first, taken, strict=True)),
        }
        for name, taken in times.items()
    }


def peak(op: str, dim: int, name: str, args: argparse.Namespace) -> int:
    """Return what one forward and backward of one contender add to its inputs."""
    small = argparse.Namespace(**{**vars(args), "nodes": 20_000, "draws": 60_000})
    contenders(op, dim, small, "given")[name]()()  # loads and compiles
    do = contenders(op, dim, args, "given")[name]()
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    do()
    return status("VmHWM") - before


def child(args: argparse.Namespace, task: list[str], malloc: str) -> Any:
    settings = ("nodes", "draws", "threads", "repeats")
    options = [part for name in settings for part in (f"--{name}", str(getattr(args, name)))]
    command = [sys.executable, __file__, *options, *(["--torch"] if args.torch else []), "--task", *task]
    environment = {**os.environ, **MALLOC[malloc], "OMP_NUM_THREADS": str(args.threads)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(task)}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def run_task(args: argparse.Namespace) -> Any:
    torch.set_num_threads(args.threads)
    use_threads(args.threads)
    what, op, dim, rest = args.task
    if what == "make":
        load_graph(args.nodes, args.draws, rest)
        return None
    return compare(op, int(dim), args, rest) if what == "time" else peak(op, int(dim), rest, args)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default=",".join((*GRAPH_OPS, *DENSE_OPS)))
    parser.add_argument("--dims", default="100,128,256")
    parser.add_argument("--nodes", type=int, default=169_343)
    parser.add_argument("--draws", type=int, default=1_240_000, help="undirected edges drawn; some coincide")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--malloc", default="tuned,stock")
    parser.add_argument("--order", default="given")
    parser.add_argument("--torch", action="store_true", help="also gather and scatter in plain torch, which is slow")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--task", nargs=4, help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(args: argparse.Namespace, op: str, dim: str) -> Iterator[dict[str, Any]]:
    """Yield one operation's records, each printed."""
    on_graph = op in GRAPH_OPS
    for order in args.order.split(",") if on_graph else ["given"]:
        if on_graph:
            child(args, ["make", op, dim, order], "stock")
        for malloc in args.malloc.split(","):
            found = child(args, ["time", op, dim, order], malloc)
            cells = [f"{name} {cell['milliseconds']:8.1f} ms {cell['ratio']:5.2f}x" for name, cell in found.items()]
            print(f"{op:12} {dim:>4} {order:5} {malloc:5}  " + "   ".join(cells), flush=True)
            yield {"op": op, "dim": int(dim), "order": order, "malloc": malloc, "cpu": found}
    if args.memory and on_graph:
        peaks = {name: child(args, ["peak", op, dim, name], "stock") for name in ALONE}
        print(
            f"{op:12} {dim:>4} peak         "
            + "   ".join(f"{name} {size / 1e6:8.0f} MB" for name, size in peaks.items())
        )
        yield {"op": op, "dim": int(dim), "peak_bytes": peaks}


def main() -> None:
    args = parse()
    if args.task:
        print(json.dumps(run_task(args)))
        return
    facts = machine()
    print_machine(facts)
    records: list[dict[str, Any]] = []
    for op in args.ops.split(","):
        for dim in args.dims.split(",") if op != "softmax" else [str(HEADS)]:
            records += measure(args, op, dim)
    RESULTS.mkdir(parents=True, exist_ok=True)
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S")
    path = RESULTS / f"kernels-{stamp}.json"
    path.write_text(json.dumps({"machine": facts, "options": vars(args), "records": records}, indent=1))
    print(f"written to {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
