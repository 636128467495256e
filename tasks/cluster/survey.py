"""Look at the machines of a cluster: `python -m tasks.cluster.survey`, whose order is in `GRAPHMILL_CLUSTER`.

`surveyed` is what other processes call. It is a process of its own, as `launch` is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter
from pydantic_core import to_json

from configs.errors import GraphmillError, StageError, error_of, kind_of
from configs.values.cluster import ClusterConfig
from tasks.cluster.connect import check_own_ray, check_reached, cluster_address, connected, first_line
from tasks.cluster.machines import Machine, alive
from tasks.cluster.order import ORDER, ShardOrder
from tasks.processes.children import PARENT, ROOT, die_with_parent, end_group
from tasks.storage.home import Home


@dataclass(frozen=True)
class Looked:
    """What there is of a machine."""

    machine: Machine
    """All that it lends."""
    free: Machine
    """What nobody has asked for now."""
    unlike: str
    """Versions that are not this machine's, in words; empty: all are."""


def surveyed(config: ClusterConfig, home: Home) -> list[Looked]:
    """Return the machines of a cluster, this one first.

    Raises RecipeError: no cluster is known, or its token is wrong; StageError: it does not answer.
    """
    order = ShardOrder(cluster_address(config, home), config, str(home.root), str(home.root))
    check_own_ray(order.address, home)
    environment = {
        **os.environ,
        ORDER: TypeAdapter(ShardOrder).dump_json(order).decode(),
        PARENT: str(os.getpid()),
    }
    with subprocess.Popen(
        [sys.executable, "-m", "tasks.cluster.survey"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            out, errors = process.communicate()
        finally:
            end_group(process)
    try:
        answer = json.loads(out)
    except ValueError:
        last = errors.decode(errors="replace").strip().splitlines()[-1:]
        raise StageError(f"the cluster at {order.address} could not be looked at: {''.join(last)}") from None
    if "kind" in answer:
        raise error_of(answer["kind"], answer["message"])
    return TypeAdapter(list[Looked]).validate_python(answer["machines"])


def check_cluster(config: ClusterConfig, home: Home) -> list[Looked]:
    """Return the machines of a cluster on which a run may begin. Raises as `surveyed`, and where versions differ."""
    machines = surveyed(config, home)
    for one in machines:
        if one.unlike:
            raise StageError(f"{one.unlike}. Install the same on both")
    return machines


def _look(order: ShardOrder) -> list[Looked]:
    from tasks.cluster.place import compare, versions
    from tasks.cluster.settings import ANSWER_SECONDS

    check_reached(order.address, order.config, Home(Path(order.home)), here=True)
    with connected(order.address, Home(Path(order.home))):
        import ray

        free = {machine.id: machine for machine in alive()}
        remote = ray.remote(versions)
        asked = [
            (machine, remote.options(num_cpus=0, resources={machine.place: 0.0001}, max_retries=0).remote())
            for machine in alive(free=False)
        ]
        machines = []
        for machine, answer in asked:
            unlike = ""
            try:
                compare(machine.name, ray.get(answer, timeout=ANSWER_SECONDS))
            except StageError as error:
                unlike = str(error).removesuffix(". Install the same on both")
            except ray.exceptions.RayTaskError as error:
                unlike = f"{machine.name} cannot run graphmill's code: {first_line(str(error.cause))}"
            except ray.exceptions.RayError as error:
                unlike = f"{machine.name} did not answer: {first_line(str(error))}"
            machines.append(Looked(machine, free.get(machine.id, machine), unlike))
        return machines


def main() -> None:
    """Print the machines, or what is wrong, as JSON."""
    order: ShardOrder = TypeAdapter(ShardOrder).validate_json(os.environ.pop(ORDER))
    try:
        print(to_json({"machines": _look(order)}).decode(), flush=True)
    except GraphmillError as error:
        print(json.dumps({"kind": kind_of(error), "message": str(error)}), flush=True)


if __name__ == "__main__":
    die_with_parent(int(os.environ[PARENT]))
    main()
    os._exit(0)
