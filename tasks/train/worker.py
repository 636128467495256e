"""The program of every rank: `python -m tasks.train.worker JOB`, by itself or as one of several.

Its output goes to `logs/rank-N.log` in the work folder; the supervisor (launch.py) reads that, `progress.json` and
`metrics.jsonl`. What would happen again (a mistake in the recipe, no memory, a bug in a model) goes to `error.json` and
ends with exit code 2: trying again would not help.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from pathlib import Path

from configs.errors import GraphmillError
from tasks.processes.children import MACHINE, PARENT, die_with_parent
from tasks.storage.artifacts import is_full_disk
from tasks.supervise import write_error
from tasks.train.job import ERROR, LOGS, Job

FINAL_ERROR_CODE = 2


def main(job_path: Path) -> int:
    """Train; return the exit code."""
    rank = int(os.environ.get("RANK", "0"))
    die_with_parent(int(os.environ[PARENT]))
    work = job_path.parent
    log = (work / LOGS / f"rank-{rank}.log").open("ab", buffering=0)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    from tasks.train.families import family_of
    from tasks.train.strategies.base import Ranks

    ranks = Ranks.here()
    try:
        job = Job.load(job_path)
        family_of(job.train).train(job, ranks)
    except Exception as error:
        from tasks.train.ranks.failures import final_error, peer_is_gone

        full_disk = is_full_disk(error)
        if peer_is_gone(error):
            print("another rank has ended", flush=True)
        elif not isinstance(error, GraphmillError) and not full_disk:
            traceback.print_exc()
            sys.stderr.flush()
        if full_disk and MACHINE not in os.environ:
            return errno.ENOSPC  # an error has no room there: who started this one knows by the exit code
        final = final_error(error, rank)
        if final is None:
            os._exit(1)  # peers may wait in a collective for ever: leave at once, who started this one ends them
        write_error(work / ERROR, final)
        return FINAL_ERROR_CODE
    return 0


if __name__ == "__main__":
    code = main(Path(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    # The interpreter's normal exit aborts the process where threads of gloo or torch still run ("terminate called
    # without an active exception"), and the job would be started again.
    os._exit(code)
