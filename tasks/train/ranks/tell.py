"""Tell the other machines of a job, where each has a home of its own, why this one's run has ended.

`python -m tasks.train.ranks.tell` is a process of its own, as it needs torch, which a run's own process does not load:
others wait at the rendezvous for this machine, whatever stage it was in.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

from configs.errors import GraphmillError, kind_of
from configs.training import TrainBase
from tasks.processes.children import ROOT, die_with_parent

_REACH_SECONDS = 2.0
_STAY_SECONDS = 5.0
"""For others to hear of it, who look several times a second."""
_MOST_SECONDS = 30.0


def tell_others(train: TrainBase, error: GraphmillError) -> None:
    """Tell the machines that wait at the rendezvous now what has ended this machine's run."""
    message = f"machine {train.machine_rank} has ended: {error}"
    content: dict[str, Any] = {
        "parent": os.getpid(),
        "machine": train.machine_rank,
        "rendezvous": train.rendezvous,
        "error": {"kind": kind_of(error), "message": message},
    }
    with contextlib.suppress(subprocess.TimeoutExpired, OSError):
        subprocess.run(
            [sys.executable, "-m", "tasks.train.ranks.tell"],
            input=json.dumps(content).encode(),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_MOST_SECONDS,
            check=False,
        )


def main() -> None:
    """Leave the error that standard input holds in the store at the rendezvous; machine 0 opens it."""
    content = json.load(sys.stdin)
    die_with_parent(content["parent"])
    host, _, port = content["rendezvous"].rpartition(":")
    first = content["machine"] == 0
    if not first:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_SECONDS).close()
    import torch.distributed as dist

    from tasks.train.ranks.meeting import ERROR_KEY, PREFIX

    made: Any = dist.TCPStore  # type: ignore[attr-defined]
    patience = datetime.timedelta(seconds=_STAY_SECONDS)
    base = made(host.strip("[]"), int(port), is_master=first, wait_for_workers=False, timeout=patience)
    store: Any = dist.PrefixStore(PREFIX, base)  # type: ignore[attr-defined]
    if not store.check([ERROR_KEY]):
        store.set(ERROR_KEY, json.dumps(content["error"]))
    if first:
        time.sleep(_STAY_SECONDS)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
