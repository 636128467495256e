"""Machines of a cluster on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from configs.schema import Recipe
from flows.terminal.console import format_bytes, out, table
from tasks.cluster.machines import Need, assign
from tasks.cluster.settings import RAY_BYTES, RUN_BYTES
from tasks.cluster.survey import Looked
from tasks.train.job import device_kind, threads_per_rank


def show_machines(machines: Sequence[Looked]) -> None:
    """Print a table of them, and whose versions differ."""
    shown = table("machine", "address", "CPUs", "free", "GPUs", "free", "memory")
    for one in machines:
        machine, free = one.machine, one.free
        numbers = (f"{number:g}" for number in (machine.cpus, free.cpus, machine.gpus, free.gpus))
        name = machine.name + (" (here)" if machine.is_own else "")
        shown.add_row(name, machine.address, *numbers, format_bytes(machine.memory_bytes))
    out().print(shown)
    for one in machines:
        if one.unlike:
            out().print(one.unlike, markup=False, soft_wrap=True)


def placement(recipe: Recipe, machines: Sequence[Looked], rank_bytes: float) -> list[str]:
    """Say which machine would get which ranks and parts, and what they take there; or that there is no room."""
    train = recipe.train
    if train.num_ranks == 1:
        return ["one rank, which runs here (train.num_ranks)"]
    said = recipe.cluster.rank_memory_gb
    memory = rank_bytes if said is None else 1e9 * said
    need = Need(threads_per_rank(train), int(device_kind(train) == "cuda"), memory)
    pack = recipe.cluster.placement == "pack"
    shares = assign([one.free for one in machines], train.num_ranks, need, pack=pack)
    lines = []
    if shares is None:
        shares = assign([one.machine for one in machines], train.num_ranks, need, pack=pack)
        if shares is None:
            return [f"no room for {train.num_ranks} ranks of {need.text()} each on the machines of the cluster"]
        lines.append("others use the cluster now: a run would wait for them, or place its ranks in another way")
    num_parts = getattr(recipe.partition, "num_parts", 1)
    in_parts = getattr(getattr(train, "strategy", None), "name", "") in ("partitioned", "partition_parallel")
    for share in shares:
        cpus, memory = need.threads * share.count, need.memory_bytes * share.count
        memory += RUN_BYTES if share.machine.is_own else 0
        text = f"{share.machine.name}: {share.text()}, {cpus} of {share.machine.cpus:g} CPUs"
        if need.gpus:
            text += f", {share.count} of {share.machine.gpus:g} GPUs"
        if in_parts and num_parts % train.num_ranks == 0:
            each = num_parts // train.num_ranks
            first, last = share.first * each, (share.first + share.count) * each - 1
            text += f", part {first}" if first == last else f", parts {first} to {last}"
        text += f"; about {format_bytes(memory + RAY_BYTES)} of memory with Ray"
        if share.machine.is_own:
            text += " and the run itself"
        if memory > share.machine.memory_bytes:
            text += (
                f", more than the {format_bytes(share.machine.memory_bytes)} that Ray counts there: let it lend fewer "
                "CPUs (graphmill cluster start --cpus N), down to 0"
            )
        lines.append(text)
    return lines
