"""Machines of a cluster, and which of them takes which ranks."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasks.cluster.settings import LOOK_SECONDS


@dataclass(frozen=True)
class Machine:
    """A machine, and what of it nobody else has asked for."""

    id: str
    """Ray's number of it."""
    name: str
    """Its host's name; where several have one name its address."""
    address: str
    cpus: float
    gpus: float
    memory_bytes: float
    is_own: bool
    """Whether this process runs there."""

    @property
    def place(self) -> str:
        """Resource of Ray's by which something is placed there and nowhere else."""
        return f"node:{self.address}"

    def room(self, need: Need) -> int:
        """Return how many ranks fit."""
        by_gpu = self.gpus // need.gpus if need.gpus else float("inf")
        by_memory = self.memory_bytes // need.memory_bytes if need.memory_bytes else float("inf")
        return int(min(self.cpus // need.threads, by_gpu, by_memory))


@dataclass(frozen=True)
class Need:
    """What a rank asks for."""

    threads: int
    gpus: int = 0
    memory_bytes: float = 0

    def resources(self, ranks: int) -> dict[str, float]:
        """Return what Ray is asked for so many ranks of one machine."""
        asked = {"CPU": self.threads * ranks, "GPU": self.gpus * ranks, "memory": int(self.memory_bytes) * ranks}
        return {name: float(amount) for name, amount in asked.items() if amount}

    def text(self) -> str:
        """Say it."""
        parts = [f"{self.threads} CPU" + "s" * (self.threads > 1)]
        parts += [f"{self.gpus} GPU"] if self.gpus else []
        parts += [f"{self.memory_bytes / 1e9:.1f} GB of memory"] if self.memory_bytes else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Share:
    """The ranks that a machine takes: `count` from `first` on."""

    machine: Machine
    first: int
    count: int

    def text(self) -> str:
        """Say which ranks they are."""
        last = self.first + self.count - 1
        return f"rank {self.first}" if self.count == 1 else f"ranks {self.first} to {last}"


def alive(*, free: bool = True) -> list[Machine]:
    """Return the cluster's machines, this one first, then by name; `free`: with what nobody uses now, else all."""
    import ray
    from ray._private.state import available_resources_per_node

    own, nodes = ray.get_runtime_context().get_node_id(), [node for node in ray.nodes() if node["Alive"]]
    names = Counter(node["NodeManagerHostname"] for node in nodes)
    left: dict[str, dict[str, float]] = available_resources_per_node() if free else {}
    machines = [
        Machine(
            node["NodeID"],
            node["NodeManagerHostname" if names[node["NodeManagerHostname"]] == 1 else "NodeManagerAddress"],
            node["NodeManagerAddress"],
            *_amounts(left.get(node["NodeID"], node["Resources"])),
            node["NodeID"] == own,
        )
        for node in nodes
    ]
    return sorted(machines, key=lambda machine: (not machine.is_own, machine.name, machine.address))


def end_with_raylet() -> None:
    """Let this process of Ray's, an actor's, end soon after Ray's own of this machine.

    Where the head is gone Ray's own ends, and a new head at that address has an actor ask it for ever (2.60).
    """
    raylet = os.getppid()

    def watch() -> None:
        while os.getppid() == raylet:
            time.sleep(5 * LOOK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _amounts(resources: dict[str, Any]) -> tuple[float, float, float]:
    return resources.get("CPU", 0.0), resources.get("GPU", 0.0), resources.get("memory", 0.0)


def assign(machines: Sequence[Machine], ranks: int, need: Need, *, pack: bool) -> list[Share] | None:
    """Return which machine takes which ranks, numbered machine by machine, the first of `machines` first.

    `pack`: on as few as hold them, else on all alike. None: there is no room for all.
    """
    room = [machine.room(need) for machine in machines]
    if sum(room) < ranks:
        return None
    taken = [0] * len(machines)
    order = sorted(range(len(machines)), key=lambda number: (not machines[number].is_own, -room[number]))
    while (left := ranks - sum(taken)) > 0:
        for number in order:
            more = min(room[number] - taken[number], left if pack else 1, ranks - sum(taken))
            taken[number] += more
    shares, first = [], 0
    for machine, count in zip(machines, taken, strict=True):
        if count:
            shares.append(Share(machine, first, count))
            first += count
    return shares
