"""Shards of a stage as tasks on a cluster: `python -m tasks.cluster.shards JOBS`.

A process of its own, as `launch` is. A shard's result comes back over Ray and goes into the cache of the home, which
alone signs what is kept there. A line of JSON for each job says whether it was computed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle
import socket
import sys
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from configs.errors import GraphmillError, StageError, kind_of
from tasks.cluster.connect import check_reached, connected, first_line
from tasks.cluster.files import FetchedFiles, home_files
from tasks.cluster.machines import alive
from tasks.cluster.order import ORDER, ShardOrder
from tasks.cluster.place import compare, mark_home, own_cache, sees_home, versions
from tasks.processes.children import PARENT, die_with_parent
from tasks.storage.home import Home
from tasks.storage.home_files.fetched import fetching
from tasks.storage.home_files.temporary import own_folder

_AHEAD = 2
"""Shards a core that are asked for at once."""


def compute(
    job: Any, payload: Any, order: ShardOrder, seen: str, files: Any
) -> tuple[bytes | None, dict[str, str], str]:
    """On some machine: do a job; return its pickled result, versions, and the machine's name.

    Where the home is not seen its shard of a table is fetched. No result: it reads more than that.
    """
    machine = versions(), socket.gethostname()
    if sees_home(order.work, seen):
        made = job.function(job.shard, payload)
    elif not job.reads_table:
        return None, *machine
    else:
        with own_folder(own_cache()) as scratch:
            limit = order.config.cache_gb * 1e9
            fetched = FetchedFiles(files, order.home, own_cache().artifacts, scratch, limit)
            with contextlib.closing(fetched), fetching(fetched.here):
                made = job.function(job.shard, payload)
    return pickle.dumps(made, protocol=5), *machine


def run(order: ShardOrder, jobs: Sequence[Any]) -> Iterator[bool]:
    """Have the cache hold the results of all jobs; yield of each whether it was computed. Raises StageError."""
    home = Home(Path(order.home))
    check_reached(order.address, order.config, home, here=True)
    with connected(order.address, home):
        import ray

        seen = os.urandom(16).hex()
        mark_home(Path(order.work), seen)
        machines = alive(free=False)
        own = next(machine for machine in machines if machine.is_own)
        files = home_files(own, order.home, order.work)
        task = ray.remote(num_cpus=1, max_retries=2)(compute)
        here = task.options(resources={own.place: 0.0001})
        payloads: dict[int, Any] = {}
        coming: deque[tuple[Any, Any]] = deque()
        most = int(_AHEAD * sum(machine.cpus for machine in machines)) or 1

        def asked(task: Any, job: Any) -> Any:
            payload = payloads.setdefault(id(job.payload), None) or ray.put(job.payload)
            payloads[id(job.payload)] = payload
            return task.remote(dataclasses.replace(job, payload=None), payload, order, seen, files)

        def finished(job: Any, one: Any) -> bool:
            if one is None:
                return False
            try:
                content, found, name = ray.get(one)
                compare(name, found)
                if content is None:
                    content, _, _ = ray.get(asked(here, job))
            except ray.exceptions.RayTaskError as error:
                raise (
                    error.cause
                    if isinstance(error.cause, GraphmillError)
                    else StageError(f"a shard failed on the cluster: {first_line(str(error.cause))}")
                ) from error
            except ray.exceptions.RayError as error:
                raise StageError(f"a shard was lost on the cluster: {first_line(str(error))}; run again") from error
            job.cache.store_pickle(job.name, content)
            return True

        for job in jobs:
            if job.cache.load(job.name) is not None:
                coming.append((job, None))
            else:
                coming.append((job, asked(task, job)))
            while len(coming) > most:
                yield finished(*coming.popleft())
        while coming:
            yield finished(*coming.popleft())


def main(jobs: Path) -> int:
    """Run the pickled jobs, which this home's own process has written."""
    order: ShardOrder = TypeAdapter(ShardOrder).validate_json(os.environ.pop(ORDER))
    try:
        for fresh in run(order, pickle.loads(jobs.read_bytes())):
            print(json.dumps({"fresh": fresh}), flush=True)
    except GraphmillError as error:
        print(json.dumps({"kind": kind_of(error), "message": str(error)}), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    die_with_parent(int(os.environ[PARENT]))
    code = 1
    try:
        code = main(Path(sys.argv[1]))
    except Exception:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
