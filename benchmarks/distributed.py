"""A graph in parts on several machines: graphmill's training against DistDGL's, in CPU time of whole machines.

    python -m benchmarks.distributed [--graph synthetic] [--machines 2,4] [--delay 1] [--gigabits 1]

Machines are network namespaces of this one (root, `ip` and control groups are needed), each with one trainer of one
thread and a /dev/shm of its own. Both sides have the same parts of the same graph, GraphSAGE of 3 x 256 and batches of
1,024 seeds with fan-out 15,10,5; both are up at once and take turns. A machine's CPU time is that of all its
processes, DistDGL's servers and samplers too.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.distributed_ours import training_recipe
from benchmarks.distributed_side import Order, Side
from benchmarks.gnn_graphs import graph_recipe, prepare
from benchmarks.gnn_report import keep, machine, print_machine
from benchmarks.machines import ROOT, Machines
from benchmarks.network_relay import DEVICE, address
from tasks.processes.children import WORKER_ENVIRONMENT
from tasks.storage.home import Home

RESULTS = Path(__file__).parent / "results"
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
BATCH_SIZE = 1024
STAGES = ("batches", "steps")
_CHECKED = 16
_EXCHANGE = 16  # batches of one exchange, by default
_SERVER_PORT = 30050
# DistDGL's launcher starts a machine's servers and trainers; PyPI's wheel has none.
_SERVER_AND_TRAINER = 'DGL_ROLE=server "$@" & DGL_ROLE=client DGL_DIST_MODE=distributed exec "$@"'
Start = Callable[[Machines, int, dict[str, str], Any], None]


@dataclass(frozen=True)
class Peer:
    """How DistDGL is run."""

    samplers: int = 0
    """Processes that sample ahead for a trainer, four batches each."""
    keeps_memory: bool = False
    """Whether malloc keeps what is free, as in graphmill's workers."""


PEERS = {
    "0 samplers": Peer(),
    "1 sampler": Peer(samplers=1),
    "tuned, 0 samplers": Peer(keeps_memory=True),
    "tuned, 1 sampler": Peer(samplers=1, keeps_memory=True),
}


@dataclass(frozen=True)
class Plan:
    """What is measured, and for how long."""

    graph: str
    overrides: tuple[str, ...]
    folder: Path
    """Of the prepared graph."""
    stages: list[str]
    apart: bool
    """Whether one side is up at a time, started anew for each round: where memory does not hold both."""
    networks: dict[str, list[str]]
    """By name, what the network between machines is told."""
    rounds: dict[str, int]
    """By stage."""
    batches: tuple[int, int]
    """graphmill's in a round, in exchanges of sixteen, and DistDGL's; of steps graphmill takes half as many."""


def torchrun_environment(machines: Machines, number: int) -> dict[str, str]:
    """Return what torchrun would set on a machine with one trainer."""
    return {
        **THREADS,
        "MASTER_ADDR": machines.address(0),
        "MASTER_PORT": "29400",
        "WORLD_SIZE": str(len(machines.machines)),
        "RANK": str(number),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GRAPHMILL_MACHINE": f"{number}/{len(machines.machines)}",
        "GLOO_SOCKET_IFNAME": DEVICE,
    }


def start_ours(plan: Plan, scratch: str) -> Start:
    """Return what starts graphmill's rank on a machine."""
    options = json.dumps({"overrides": plan.overrides, "scratch": scratch})
    command = [sys.executable, "-m", "benchmarks.distributed_ours", plan.graph, str(plan.folder), options]

    def start(machines: Machines, number: int, environment: dict[str, str], log: Any) -> None:
        environment = {**environment, **torchrun_environment(machines, number), **WORKER_ENVIRONMENT}
        machines.start(number, command, environment, log)

    return start


def start_dgl(plan: Plan, peer: Peer, parts: Path) -> Start:
    """Return what starts DistDGL's server and trainer on a machine."""
    recipe = training_recipe(plan.graph, 1, plan.overrides)
    manifest = json.loads((plan.folder / "manifest.json").read_text())
    options = {
        "graph": str(plan.folder),
        "hidden_dim": recipe.model.hidden_dim,  # type: ignore[attr-defined]
        "dropout": recipe.model.dropout,  # type: ignore[attr-defined]
        "learning_rate": recipe.train.learning_rate,
        "num_classes": manifest["num_classes"],
    }
    program = [sys.executable, "-m", "benchmarks.distributed_dgl", "serve", str(parts), json.dumps(options)]

    def start(machines: Machines, number: int, environment: dict[str, str], log: Any) -> None:
        environment = {
            **environment,
            **torchrun_environment(machines, number),
            **(WORKER_ENVIRONMENT if peer.keeps_memory else {"PYTHONUNBUFFERED": "1"}),
            "DGL_SERVER_ID": str(number),
            "DGL_IP_CONFIG": str(parts / "ip_config"),
            "DGL_CONF_PATH": str(parts / "graph.json"),
            "DGL_NUM_SERVER": "1",
            "DGL_NUM_SAMPLER": str(peer.samplers),
            "DGL_NUM_CLIENT": str(len(machines.machines) * (1 + peer.samplers)),
            "DGL_GRAPH_FORMAT": "csc",
            "DGL_GROUP_ID": "0",
        }
        machines.start(number, ["sh", "-c", _SERVER_AND_TRAINER, "sh", *program], environment, log)

    return start


def dgl_parts(folder: Path, count: int, home: Home) -> Path:
    """Return the folder of DistDGL's files of a graph in so many parts, written if it is not there yet."""
    out = home.root / "distdgl" / f"{folder.name}-{count}"
    if not out.exists():
        making = out.with_suffix(".tmp")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        command = [sys.executable, "-m", "benchmarks.distributed_dgl", "write", str(folder), str(count), str(making)]
        subprocess.run(command, cwd=ROOT, check=True)
        (making / "ip_config").write_text("".join(f"{address(i)} {_SERVER_PORT}\n" for i in range(count)))
        making.rename(out)
    return out


def compare(plan: Plan, count: int, peer: Peer, parts: Path) -> list[dict[str, Any]]:
    """Measure both sides on so many machines; return what was found by network and stage."""
    rounds: dict[tuple[str, str], dict[str, list[dict[str, float]]]] = {
        (stage, name): {"ours": [], "dgl": []} for stage in plan.stages for name in plan.networks
    }
    checked: dict[str, dict[str, float]] = {}
    memory: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="graphmill-benchmark-") as scratch:
        starts = {"ours": start_ours(plan, scratch), "dgl": start_dgl(plan, peer, parts)}
        for names in [["ours"], ["dgl"]] * max(plan.rounds.values()) if plan.apart else [["ours", "dgl"]]:
            with ExitStack() as stack:
                sides = [stack.enter_context(Side(name, count, starts[name])) for name in names]
                checked |= {side.name: side.ask(Order("check", _CHECKED)) for side in sides}
                for (stage, name), found in rounds.items():
                    for side in sides:
                        side.machines.tell_network(*plan.networks[name])
                    take_turns(sides, stage, plan, found)
                memory |= {side.name: side.memory() for side in sides}
    print("  a batch holds " + "; ".join(f"{name}: {describe(facts)}" for name, facts in checked.items()))
    results = [
        {"network": name, "stage": stage, "checked": checked, "memory": memory, **summary(found, checked)}
        for (stage, name), found in rounds.items()
    ]
    for each in results:
        show(each)
    print("  MB of a machine: " + "; ".join(f"{name}: {describe(facts)}" for name, facts in memory.items()), flush=True)
    return results


def take_turns(sides: list[Side], stage: str, plan: Plan, found: dict[str, list[dict[str, float]]]) -> None:
    """Add what each side's rounds give, by its name."""
    mine, theirs = plan.batches
    if stage == "steps":
        mine = max(_EXCHANGE, mine // 2)
    orders = {"ours": Order(stage, mine, min(_EXCHANGE, mine // 2)), "dgl": Order(stage, theirs, min(4, theirs // 2))}
    for number in range(-1, 1 if plan.apart else plan.rounds[stage]):  # the first one warms up
        for side in sides if number % 2 else sides[::-1]:
            done = side.measure(orders[side.name])
            if number >= 0:
                found[side.name].append(done)
                print(f"    {side.name} {stage} {describe(done)}", file=sys.stderr, flush=True)


def summary(rounds: dict[str, list[dict[str, float]]], checked: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Return medians of each side for 1,024 seeds (graphmill cuts an epoch into equal batches), and ratios."""
    found: dict[str, Any] = {}
    scaled = {
        name: [{key: value * BATCH_SIZE / checked[name]["seeds"] for key, value in done.items()} for done in of_side]
        for name, of_side in rounds.items()
    }
    for name, of_side in scaled.items():
        for key in ("cpu_ms", "wall_ms", "sent_mb"):
            found[f"{name}_{key}"] = statistics.median(done[key] for done in of_side)
    for key in ("cpu", "wall"):
        pairs = zip(scaled["dgl"], scaled["ours"], strict=True)
        found[f"{key}_ratios"] = [theirs[f"{key}_ms"] / ours[f"{key}_ms"] for theirs, ours in pairs]
        found[f"{key}_ratio"] = statistics.median(found[f"{key}_ratios"])
    return found


def describe(facts: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:,.0f}" for name, value in facts.items() if name != "wall_ms")


def show(found: dict[str, Any]) -> None:
    numbers = [
        f"{found[f'ours_{key}']:9,.1f} {found[f'dgl_{key}']:9,.1f}" + (f" {found[ratio]:6.2f}" if ratio else "")
        for key, ratio in (("cpu_ms", "cpu_ratio"), ("wall_ms", "wall_ratio"), ("sent_mb", ""))
    ]
    spread = f"{min(found['cpu_ratios']):.2f} to {max(found['cpu_ratios']):.2f}"
    print(f"  {found['stage']:8s} {found['network']:20s} {' | '.join(numbers)}   {spread}", flush=True)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", default="synthetic", help="debdeps, synthetic or a recipe's file")
    parser.add_argument("--machines", default="2,4")
    parser.add_argument("--parts", default="coarsened", help="partitioner")
    parser.add_argument("--peers", default="; ".join(PEERS), help="how DistDGL is run: names, with ; between them")
    parser.add_argument("--delay", type=float, default=0.0, help="milliseconds on the way, measured as well")
    parser.add_argument("--gigabits", type=float, default=0.0, help="a second and machine, measured as well")
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--apart", action="store_true", help="one side is up at a time: needs half of the memory")
    parser.add_argument("--rounds", default="5,3", help="of batches alone, of whole steps")
    parser.add_argument("--batches", default="32,4", help="in a round: graphmill's (a multiple of 16), DistDGL's")
    parser.add_argument("--home", type=Path, default=Home.open().root)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    counts = [int(count) for count in args.machines.split(",")]
    networks = {"as it is": ["delay 0", "rate inf"]}
    if args.delay or args.gigabits:
        name = " ".join([f"{args.delay:g} ms", *([f"{args.gigabits:g} Gb/s"] if args.gigabits else [])])
        rate = args.gigabits * 1.25e8 or float("inf")
        networks[name] = [f"delay {args.delay / 1000}", f"rate {rate}"]
    overrides = (f"partition={args.parts}", f"partition.num_parts={max(counts)}")
    home = Home.open(args.home)
    folder = prepare(graph_recipe(args.graph, overrides), home)
    mine, theirs = (int(number) for number in args.batches.split(","))
    rounds = dict(zip(STAGES, map(int, args.rounds.split(",")), strict=True))
    plan = Plan(args.graph, overrides, folder, args.stages.split(","), args.apart, networks, rounds, (mine, theirs))
    facts = machine()
    print_machine(facts)
    print(f"  {'':29s}    CPU ms of a machine      |          wall ms           |    MB sent")
    print(f"  {'':29s} graphmill   DistDGL  ratio |     ours    theirs  ratio |     ours    theirs   CPU ratios")
    results: list[dict[str, Any]] = []
    for count in counts:
        parts = dgl_parts(folder, count, home)
        for name in map(str.strip, args.peers.split(";")):
            print(f"{count} machines, DistDGL {name}", flush=True)
            shared = {"machines": count, "variant": name, "peer": asdict(PEERS[name])}
            results += [{**shared, **found} for found in compare(plan, count, PEERS[name], parts)]
            keep(args, "distributed", facts, results=results)


if __name__ == "__main__":
    main(sys.argv[1:])
