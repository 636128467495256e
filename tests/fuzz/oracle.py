"""One judge of all fuzzing: an input is read, or refused by a plain error that names it, within time and memory.

Work is done in a child process, which may crash, hang or ask for all memory without taking the tests along:

    with Worker(folder) as worker:
        answer = worker.ask("tests.fuzz.work:table", path="x.csv")

A function of `tests/fuzz/work.py` takes texts and numbers and returns what JSON can say. The folder is the child's
current one, and nothing may appear beside it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

MAX_SECONDS = 60.0
"""A small input takes milliseconds; the machine may be busy."""
MAX_MORE_BYTES = 1 << 30
"""Of address space, beyond what the child has when all is imported; readers' own bounds are well below."""


@dataclass(frozen=True)
class Answer:
    """What came of one input: `read` with its content, `refused`, or `failed` in a way that is a finding."""

    kind: str
    content: Any = None
    error: str = ""


@dataclass
class Tally:
    """Counts of inputs, and the findings: each kind of failure once, with the input that showed it."""

    inputs: Counter[str] = field(default_factory=Counter)
    findings: dict[str, str] = field(default_factory=dict)

    def add(self, answer: Answer, what: str, keep: Callable[[str], Path]) -> str:
        """Count an answer, and return its kind; what shows a new finding is kept under a name."""
        self.inputs[answer.kind] += 1
        cause = answer.error.split("(", 1)[0][:200]
        if answer.kind == "failed" and cause not in self.findings:
            self.findings[cause] = f"{what}: {answer.error}"
            print(f"{self.findings[cause]}\n  kept as {keep(f'finding-{len(self.findings)}')}", flush=True)
        return answer.kind

    def end(self, what: str) -> None:
        """Say all counts, and fail where there are findings."""
        counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.inputs.items()))
        print(f"{what}: {sum(self.inputs.values()):,} inputs: {counts}; {len(self.findings)} findings", flush=True)
        assert not self.findings, "\n".join(self.findings.values())


class Worker:
    """A child process that does pieces of work one after the other; started again when one was too much for it."""

    def __init__(
        self,
        folder: Path,
        max_seconds: float = MAX_SECONDS,
        max_more_bytes: int = MAX_MORE_BYTES,
        prepare: str = "prepare",
    ) -> None:
        """`prepare`: the function of `tests/fuzz/work.py` that the child calls first."""
        self.folder, self.prepare = folder, prepare
        self.max_seconds, self.max_more_bytes = max_seconds, max_more_bytes
        self._child: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._beside = set(folder.parent.iterdir())

    def __enter__(self) -> Worker:
        """The child is started when it is first asked."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the child."""
        self._end()

    def ask(self, work: str, *names: str, **arguments: Any) -> Answer:
        """Do a piece of work. `names`: of which a refusal must name one (a file's name); none: whatever it says."""
        child = self._child or self._start()
        try:
            child.stdin.write(json.dumps([work, arguments]).encode() + b"\n")
            child.stdin.flush()
            line = self._line(child)
        except BrokenPipeError:
            line = b""
        if not line:
            return Answer("failed", error=self._end())
        reply = json.loads(line)
        has_room, answer = reply.pop("has_room"), Answer(**reply)
        if answer.kind == "failed" or not has_room:  # what it left behind must not be the next one's
            self._end()
        if answer.kind == "refused" and names and not any(name in answer.error for name in names):
            return Answer("failed", error=f"a refusal that does not name {' or '.join(names)}: {answer.error}")
        new = set(self.folder.parent.iterdir()) - self._beside
        if new:
            self._beside |= new
            return Answer("failed", error=f"something was written outside of the folder: {sorted(map(str, new))}")
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        root = Path(__file__).resolve().parent.parent.parent
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.oracle", str(self.folder), str(self.max_more_bytes), self.prepare],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=root,
            # Else each thread reserves 64 MB of addresses, used or not, and they count.
            env={**os.environ, "MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"},
        )
        assert self._line(self._child, ten_times=True) == b"ready\n"
        return self._child

    def _line(self, child: subprocess.Popen[bytes], ten_times: bool = False) -> bytes:
        """Return the child's next line; nothing where it died or took too long."""
        assert child.stdout is not None
        until, data = time.monotonic() + self.max_seconds * (10 if ten_times else 1), b""
        while not data.endswith(b"\n"):
            ready, _, _ = select.select([child.stdout], [], [], max(0.0, until - time.monotonic()))
            part = os.read(child.stdout.fileno(), 1 << 16) if ready else b""
            if not part:
                return b""
            data += part
        return data

    def _end(self) -> str:
        """End the child; say what became of it."""
        child, self._child = self._child, None
        if child is None:
            return ""
        assert child.stdin is not None
        assert child.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        try:
            code = child.wait(1.0)
            words = (
                f"the process died of {signal.Signals(-code).name}" if code < 0 else f"the process ended with {code}"
            )
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            words = f"no answer within {self.max_seconds:g} seconds"
        child.stdout.close()
        return words


def _used_bytes() -> tuple[int, int]:
    """Return how many bytes of addresses are taken, and of memory."""
    addresses, resident = Path("/proc/self/statm").read_text().split()[:2]
    return int(addresses) * resource.getpagesize(), int(resident) * resource.getpagesize()


def _serve(folder: str, more_bytes: int, prepare: str) -> None:
    """Answer pieces of work, a line each, until standard input ends."""
    from configs.errors import UserError
    from tests.fuzz import confined

    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what is printed meanwhile is no answer
    work = importlib.import_module("tests.fuzz.work")
    os.chdir(folder)
    getattr(work, prepare)()
    addresses, memory = _used_bytes()
    limit = addresses + more_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    out.write("ready\n")
    out.flush()
    for line in sys.stdin:
        name, arguments = json.loads(line)
        module, _, function = name.partition(":")
        try:
            content = getattr(importlib.import_module(module), function)(**arguments)
            answer = {"kind": "read", "content": content}
        except UserError as error:
            answer = {"kind": "refused", "error": str(error)}
        except Exception as error:
            answer = {"kind": "failed", "error": f"{type(error).__name__}: {str(error)[:500]}"}
        if confined.noted:
            answer = {"kind": "failed", "error": f"a reader did what none may do: {'; '.join(confined.noted)[:500]}"}
            confined.noted.clear()
        addresses, resident = _used_bytes()
        if resident > memory + more_bytes / 2:
            more = f"after it {(resident - memory) >> 20} MB more than before all inputs are in use"
            answer = {"kind": "failed", "error": more}
        # Libraries keep addresses for threads and for later, used or not: with few left the next child goes on.
        out.write(json.dumps({**answer, "has_room": addresses < limit - more_bytes / 2}) + "\n")
        out.flush()


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]), sys.argv[3])
