"""Machines as a scheduler's environment names them: a step of Slurm, an indexed Job of Kubernetes.

Slurm is asked for the step (`srun`), not for the job: in the script of a job of several nodes, too, the job's variables
are set, yet one process runs there; and a step may have fewer nodes than its job. (Looked at with Slurm 22.05.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from configs.errors import RecipeError
from configs.values.hosts import RENDEZVOUS_PORT, rendezvous_on

MACHINES = "GRAPHMILL_MACHINES"
RENDEZVOUS = "GRAPHMILL_RENDEZVOUS"
"""What an indexed Job's manifest says beside its index: the number of pods, and where pod 0 is found."""
_PORTS = 1000
_LARGEST = 4096
_PART = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


@dataclass(frozen=True)
class Placement:
    """Where a process stands among the machines of a training."""

    num_machines: int
    machine_rank: int
    rendezvous: str
    """host:port of machine 0."""
    hosts: tuple[str, ...]
    """The machines' names, machine 0 first; empty where they are not known."""
    source: str
    """Who says so, in words."""


def scheduled_placement(environment: Mapping[str, str]) -> Placement | None:
    """Return the place that a scheduler has given this process, or None where it is alone.

    Raises RecipeError: the scheduler's variables contradict each other, or there are several tasks a node.
    """
    return _of_slurm(environment) or _of_kubernetes(environment)


def _of_slurm(environment: Mapping[str, str]) -> Placement | None:
    nodes = _number(environment, "SLURM_STEP_NUM_NODES", 1)
    if nodes < 2:
        return None
    tasks = _number(environment, "SLURM_STEP_NUM_TASKS", nodes)
    if tasks != nodes:
        raise RecipeError(
            f"Slurm's step has {tasks} tasks on {nodes} nodes, and each would be a machine; start one on each node "
            "(srun --ntasks-per-node=1), and train.num_ranks for the processes there"
        )
    text = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
    hosts = tuple(expand_nodes(text))
    rank = _number(environment, "SLURM_NODEID", -1)
    if len(hosts) != nodes or not 0 <= rank < nodes:
        raise RecipeError(
            f"Slurm's variables do not fit each other: SLURM_STEP_NUM_NODES={nodes}, SLURM_NODEID={rank}, "
            f"SLURM_STEP_NODELIST={text}; name the machines with --hosts"
        )
    job = _number(environment, "SLURM_JOB_ID", 0)
    # Jobs may share a node: each meets at a port of its own.
    rendezvous = rendezvous_on(hosts[0], RENDEZVOUS_PORT + job % _PORTS)
    return Placement(nodes, rank, rendezvous, hosts, f"Slurm's job {job}")


def _of_kubernetes(environment: Mapping[str, str]) -> Placement | None:
    machines = _number(environment, MACHINES, 1)
    if "JOB_COMPLETION_INDEX" not in environment or machines < 2:
        return None
    rank = _number(environment, "JOB_COMPLETION_INDEX", -1)
    rendezvous = environment.get(RENDEZVOUS, "")
    if not 0 <= rank < machines or not rendezvous:
        raise RecipeError(
            f"this is pod {rank} of an indexed Job of {MACHINES}={machines} machines, which meet at "
            f"{RENDEZVOUS}={rendezvous or '(not set)'}: both are needed, the number as the Job's completions, and the "
            "place as POD-0.SERVICE:29500"
        )
    return Placement(machines, rank, rendezvous, (), "the indexed Job of Kubernetes")


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "").strip()
    if text and not text.isdecimal():
        raise RecipeError(f"{name}={text!r} in the environment is not a number; name the machines with --hosts")
    return int(text) if text else default


def expand_nodes(text: str) -> Iterator[str]:
    """Yield the names that Slurm writes as `node[01-03,7],gpu1`. Raises RecipeError."""
    count = 0
    for item in _split_outside_brackets(text):
        for name in _expand(item, text):
            count += 1
            if count > _LARGEST:
                raise RecipeError(f"Slurm's node list {text[:80]} names more than {_LARGEST} machines")
            yield name


def _split_outside_brackets(text: str) -> list[str]:
    hidden = _PART.sub(lambda match: match[0].replace(",", ";"), text)
    return [item.strip().replace(";", ",") for item in hidden.split(",") if item.strip()]


def _expand(item: str, text: str) -> Iterator[str]:
    match = _PART.search(item)
    if match is None:
        if "[" in item or "]" in item:
            raise RecipeError(f"Slurm's node list {text[:80]} cannot be read at {item[:80]}")
        yield item
        return
    for part in match[1].split(","):
        bounds = _RANGE.fullmatch(part.strip())
        if bounds is None:
            raise RecipeError(f"Slurm's node list {text[:80]} cannot be read at {part[:80]!r}")
        low, high = bounds[1], bounds[2] or bounds[1]
        for number in range(int(low), int(high) + 1):
            # Zeros before the first number are part of all names of the range.
            yield from _expand(f"{item[: match.start()]}{number:0{len(low)}d}{item[match.end() :]}", text)
