"""A pytest plugin of `python -m tests.gpu`: keeps each result as it comes, and outlives what breaks CUDA or hangs.

Results are JSON lines: test, outcome (passed, skipped, failed, hung, crashed), seconds, the last lines of what failed.
After an illegal access every later CUDA call of the process fails, and a kernel that never ends holds it for ever: the
process then ends with status AGAIN, and a further one leaves out the tests that have a line.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

AGAIN = 77
_MOST_LINES = 40


class Watch:
    """Writes results to a file; `limit`: seconds of a test."""

    def __init__(self, results: Path, limit: float) -> None:
        self.results, self.limit = results, limit
        self.began = ("", 0.0)
        self.outcome: dict[str, Any] = {}
        self.owner = os.getpid()  # ranks may be forked from this process

    def write(self, **line: Any) -> None:
        with self.results.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def pytest_sessionstart(self) -> None:
        threading.Thread(target=self.end_what_hangs, daemon=True).start()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        done = results(self.results)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
        items[:] = [item for item in items if item.nodeid not in done]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.began, self.outcome = (nodeid, time.monotonic()), {"outcome": "passed", "text": ""}
        self.write(test=nodeid, outcome="crashed")  # unless another line follows

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            text = "\n".join(report.longreprtext.splitlines()[-_MOST_LINES:])
            self.outcome = {"outcome": "failed", "text": text}
        elif report.skipped and self.outcome["outcome"] == "passed":
            self.outcome = {"outcome": "skipped", "text": report.longreprtext[-300:]}

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        seconds, self.began = round(time.monotonic() - self.began[1], 2), ("", 0.0)
        self.write(test=nodeid, seconds=seconds, **self.outcome)
        if self.outcome["outcome"] == "failed" and is_broken():
            print(f"\n{nodeid} broke the GPU's context: going on in another process", flush=True)
            os._exit(AGAIN)

    def end_what_hangs(self) -> None:
        while True:
            time.sleep(min(1, self.limit / 10))
            test, began = self.began
            if test and time.monotonic() - began > self.limit and os.getpid() == self.owner:
                with self.results.with_suffix(".stacks").open("a") as file:
                    print(test, file=file, flush=True)
                    faulthandler.dump_traceback(file)
                self.write(test=test, outcome="hung", seconds=self.limit, text=f"took longer than {self.limit:g} s")
                os._exit(AGAIN)


def is_broken() -> bool:
    """Whether this process can no longer use its GPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()
        return float(torch.ones(1, device="cuda") + 1) != 2
    except RuntimeError:
        return True


def results(path: Path) -> dict[str, dict[str, Any]]:
    """Return the last line of each test."""
    lines = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    return {line["test"]: line for line in lines}
