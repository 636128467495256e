"""One machine's ranks of several machines': `python -m tasks.train.ranks.torchrun ARGUMENTS`, which are torchrun's.

It does not outlive the process that started it. The machines talk to each other while it runs (`meeting.py`).
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from pathlib import Path

from configs.errors import StageError
from tasks.processes.children import PARENT, die_with_parent
from tasks.supervise import write_error
from tasks.train.ranks.meeting import MEETING, UNREACHED_CODE, Meeting, Member
from tasks.train.ranks.rank_logs import MESSAGE

_SILENT_SECONDS = 10.0
"""For commands that are typed one after the other."""


def run_with(meeting: Meeting, arguments: list[str]) -> None:
    """Run torchrun as one of several machines. Raises StageError where they do not come together in time."""
    from torch.distributed.run import main

    def say_missing() -> None:
        print(
            f"{MESSAGE}waiting for {member.missing()} at {meeting.rendezvous}, {meeting.patience_seconds:.0f} seconds "
            "at the most: the same command has to be given there",
            flush=True,
        )

    with Member(meeting) as member:
        silence = threading.Timer(_SILENT_SECONDS, say_missing)
        silence.daemon = True
        silence.start()
        try:
            member.wait_for_all()
        finally:
            silence.cancel()
        print(f"all {meeting.machines} machines are there", flush=True)
        main(arguments)


def main(arguments: list[str]) -> int:
    """Start this machine's ranks and wait for them."""
    die_with_parent(int(os.environ[PARENT]))
    meeting = Meeting.parse(os.environ[MEETING])
    try:
        run_with(meeting, arguments)
    except StageError as error:
        print(f"error: {error}", flush=True)
        if meeting.machine and not meeting.own_home:
            return UNREACHED_CODE  # where all see one home, what lies in it is machine 0's to say
        if not Path(meeting.error).exists():
            write_error(Path(meeting.error), error)
        return 1
    return 0


if __name__ == "__main__":
    code = 1
    try:
        code = main(sys.argv[1:])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads wait for other machines, and would abort the interpreter's own end
