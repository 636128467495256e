"""Run ranks on a cluster once, until all have ended or one is lost: `python -m tasks.cluster.launch`.

A process of its own, so that the flow's imports no Ray and hears none of Ray's outpourings. Its order is in
`GRAPHMILL_CLUSTER`. What ranks write to standard output it passes on. Exit codes are those of the ranks.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from configs.errors import GraphmillError, StageError
from tasks.cluster.connect import check_head, check_own_ray, check_reached, connected
from tasks.cluster.files import home_files
from tasks.cluster.machines import Machine, Need, Share, alive, assign
from tasks.cluster.order import ORDER, Order
from tasks.cluster.place import Place, compare, mark_home
from tasks.cluster.settings import ANSWER_SECONDS, LOOK_SECONDS
from tasks.processes.children import PARENT, describe_exit, die_with_parent
from tasks.storage.artifacts import write_atomic
from tasks.storage.home import Home
from tasks.supervise import ERROR_FILE, LOST_CODE, MACHINES_FILE, MESSAGE, write_error


def main() -> int:
    """Run what is ordered; return the exit code, negative for a signal that has ended a rank."""
    order: Order = TypeAdapter(Order).validate_json(os.environ.pop(ORDER))
    home = Home(Path(order.home))
    try:
        with contextlib.ExitStack() as stack:
            _connect(order, home, stack)
            return _run(order, sys.argv[1:])
    except GraphmillError as error:
        write_error(Path(order.work) / ERROR_FILE, error)
        return 1


def _connect(order: Order, home: Home, stack: contextlib.ExitStack) -> None:
    """Join the cluster; after a loss its head may be on its way, and this machine may have to join the new one.

    Raises StageError: it did not come in time.
    """
    until = time.monotonic() + 60 * order.config.wait_minutes
    said = ""
    while True:
        try:
            check_reached(order.address, order.config, home, here=True)
            check_own_ray(order.address, home)
            stack.enter_context(connected(order.address, home))
        except StageError as error:
            if time.monotonic() > until:
                raise
            if said != (said := str(error)):
                say(f"{error}; waiting for it, {order.config.wait_minutes:g} minutes at the most")
            time.sleep(ANSWER_SECONDS / 10)
        else:
            return


def say(text: str) -> None:
    """Print a line for the run's log."""
    print(f"{MESSAGE}{text}", flush=True)


def _run(order: Order, arguments: list[str]) -> int:
    import ray
    from ray.util.placement_group import remove_placement_group

    need = order.need
    own = next(machine for machine in alive(free=False) if machine.is_own)
    shares, group = _room(order, need)
    seen_text = secrets.token_hex(16)
    mark_home(Path(order.work), seen_text)
    files = home_files(own, order.home, order.work)
    places: list[Any] = []
    try:
        for number, share in enumerate(shares):
            places.append(_place(order, need, share, group, number, seen_text, files))
        return _Attempt(order, own, shares, places).run(arguments)
    finally:
        with contextlib.suppress(Exception):
            ray.wait([place.end.remote() for place in places], num_returns=len(places), timeout=5 * LOOK_SECONDS)
        with contextlib.suppress(Exception):  # the head may be gone, and all goes with this process
            for actor in (*places, files):
                ray.kill(actor)
            remove_placement_group(group)


def _room(order: Order, need: Need) -> tuple[list[Share], Any]:
    """Return which machine takes which ranks, once there is room, and the hold of it.

    A machine that is lost is known to be after a moment only, and others may be faster: then all is looked at again.
    Raises StageError: there is no room, or too late.
    """
    from ray.util.placement_group import placement_group, remove_placement_group

    until = time.monotonic() + 60 * order.config.wait_minutes
    share_out = partial(assign, ranks=order.ranks, need=need, pack=order.config.placement == "pack")
    said = False
    while True:
        shares = share_out(machines := alive())
        if shares is not None:
            group = placement_group([{**need.resources(one.count), one.machine.place: 0.001} for one in shares])
            if group.wait(10 * LOOK_SECONDS):
                return shares, group
            remove_placement_group(group)
        has = "; ".join(map(_text, machines))
        short = f"no room for {order.ranks} ranks of {need.text()} each on the cluster's machines (free now: {has})"
        if time.monotonic() > until:
            raise StageError(
                f"{short}, not within {order.config.wait_minutes:g} minutes either; take fewer train.num_ranks or "
                "train.threads, or let more machines join. Running again goes on from the last checkpoint"
            )
        if shares is None and not said:
            why = ", others use it" if share_out(alive(free=False)) is not None else ""
            say(f"{short}{why}; waiting for room, {order.config.wait_minutes:g} minutes at the most")
            said = True
        time.sleep(5 * LOOK_SECONDS)


def _place(order: Order, need: Need, share: Share, group: Any, number: int, seen_text: str, files: Any) -> Any:
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    asked = need.resources(share.count)
    options = {
        "num_cpus": asked["CPU"],
        "num_gpus": asked.get("GPU", 0),
        "max_restarts": 0,
        "max_concurrency": 4,
        "memory": asked.get("memory", 0),
        "scheduling_strategy": PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number),
    }
    return (
        ray.remote(Place)
        .options(**options)
        .remote(order, seen_text, files, is_own=share.machine.is_own, has_main=share.first == 0)
    )


def _text(machine: Machine) -> str:
    gpus = f", {machine.gpus:g} GPUs" if machine.gpus else ""
    return f"{machine.name} {machine.cpus:g} CPUs{gpus}, {machine.memory_bytes / 1e9:.1f} GB"


class _Attempt:
    """Ranks at work: waits for their ends, and passes on what they print."""

    def __init__(self, order: Order, own: Machine, shares: Sequence[Share], places: Sequence[Any]) -> None:
        self._order, self._own, self._shares, self._places = order, own, shares, places
        self._printed: dict[Path, int] = {}
        self._used: dict[int, dict[str, Any]] = {}

    def run(self, arguments: list[str]) -> int:
        """Return the exit code."""
        import ray

        facts = []
        for share, place in zip(self._shares, self._places, strict=True):
            try:
                facts.append(ray.get(place.facts.remote(), timeout=ANSWER_SECONDS))
            except ray.exceptions.RayError as error:
                return self._lost(share, error)
        for share, fact in zip(self._shares, facts, strict=True):
            compare(share.machine.name, fact["versions"])
            if self._order.shares_files and not fact["sees"]:
                raise StageError(
                    f"{share.machine.name} does not see {self._order.home}, and the ranks of this training exchange "
                    "files there: put the home on a file system that all machines share, or leave --cluster out"
                )
            say(
                f"{share.machine.name}: {share.text()}"
                + ("" if fact["sees"] else f"; files come from {self._own.name}")
            )
        meeting = facts[0]["address"], facts[0]["port"]
        count = len(self._shares)
        running = {
            place.run.remote(arguments, share.first, share.count, f"{number}/{count}", meeting): share
            for number, (share, place) in enumerate(zip(self._shares, self._places, strict=True))
        }
        failures: list[int] = []
        until = float("inf")
        while running and time.monotonic() < until:
            ended, _ = ray.wait(list(running), num_returns=1, timeout=LOOK_SECONDS)
            for one in ended:
                share = running.pop(one)
                try:
                    code = self._ended(share, ray.get(one))
                except ray.exceptions.RayError as error:
                    code = self._lost(share, error)
                if code and not failures:  # the cause may be another's end, which is told in a moment
                    until = time.monotonic() + 10 * LOOK_SECONDS
                failures += [code] if code else []
            self._pass_on()
        used = [self._used[first] for first in sorted(self._used)]
        write_atomic(Path(self._order.work) / MACHINES_FILE, json.dumps(used).encode())
        return min(failures, key=lambda code: (code > 0, code != LOST_CODE), default=0)

    def _ended(self, share: Share, outcome: dict[str, Any]) -> int:
        """Say what a machine's ranks have used, or what went wrong there; return their exit code."""
        name = share.machine.name
        if "error" in outcome:
            full = "its disk is full: " if outcome["full_disk"] else ""
            raise StageError(
                f"{name} ({share.text()}): {full}{outcome['error']}; running again goes on from the last checkpoint"
            )
        fetched = f", {outcome['fetched_bytes'] / 1e6:,.0f} MB fetched" if outcome["fetched_bytes"] >= 1e6 else ""
        say(
            f"{name}: CPU {outcome['cpu_percent']:.0f} %, {outcome['peak_bytes'] / 1e6:,.0f} MB of memory, "
            f"{outcome['sent_bytes'] / 1e6:,.0f} MB sent{fetched}"
        )
        figures = ("cpu_percent", "peak_bytes", "sent_bytes", "fetched_bytes")
        self._used[share.first] = {"machine": name, "ranks": share.text(), **{one: outcome[one] for one in figures}}
        if outcome["code"]:
            ended = f"rank {outcome['rank']} on {name} ended with {describe_exit(outcome['code'])}"
            say(ended) if outcome["code"] < 0 else print(ended, flush=True)  # others that end for that are no news
        return int(outcome["code"])

    def _lost(self, share: Share, error: Exception) -> int:
        of_machine = "node" in str(error).lower()
        why = "the machine is gone or silent" if of_machine else "what held its ranks there has ended"
        try:
            check_head(self._order.address)
        except StageError:
            why = f"the cluster's head, {self._order.address}, is gone"
        print(
            f"warning: {share.machine.name} ({share.text()}) is lost: {why}; the ranks go on from the last checkpoint "
            "where there is room",
            flush=True,
        )
        print(str(error), file=sys.stderr, flush=True)
        return LOST_CODE

    def _pass_on(self) -> None:
        for path in sorted((Path(self._order.work) / "logs").glob("said-*.log")):
            with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                file.seek(self._printed.get(path, 0))
                content = file.read()
                whole = content[: content.rfind(b"\n") + 1]
                self._printed[path] = self._printed.get(path, 0) + len(whole)
                sys.stdout.buffer.write(whole)
        sys.stdout.flush()


if __name__ == "__main__":
    die_with_parent(int(os.environ[PARENT]))
    code = 1
    try:
        code = main()
    except Exception:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)
