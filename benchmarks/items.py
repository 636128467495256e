"""Items of a benchmark that are measured one by one in a further process: one that fails costs itself only.

After an illegal access every later CUDA call of a process fails, and a kernel that never ends holds it for ever. So the
process is replaced by another after that, and goes on with the next item; what is known is written after each.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from tasks.storage.artifacts import write_atomic

_START_SECONDS = 300
Items = dict[tuple[str, str], Callable[[], Any]]
"""Part and name of what is measured; it is called in the further process."""


def add_options(parser: argparse.ArgumentParser, parts: tuple[str, ...], limit: float) -> None:
    """Add the options that `run_items` reads."""
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(parts), help=f"of {','.join(parts)}")
    parser.add_argument("--limit", type=float, default=limit, help="seconds of an item; 0: none, and in this process")
    parser.add_argument("--answers", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--left", type=json.loads, help=argparse.SUPPRESS)


def check_parts(parser: argparse.ArgumentParser, args: argparse.Namespace, parts: tuple[str, ...]) -> None:
    """End with a message for a part that there is not."""
    if unknown := set(args.parts) - set(parts):
        parser.error(f"--parts: {', '.join(sorted(unknown))} is none of {', '.join(parts)}")


def run_items(module: str, arguments: list[str], args: argparse.Namespace, items: Items, file: Path, head: Any) -> int:
    """Measure the items of `args.parts` and write them to a JSON file after each; returns 1 where one failed.

    Args:
        module: whose main, called again with the arguments, comes here with the same items.
        arguments: of the command.
        args: the same, parsed.
        items: all that there are.
        file: gets {part: {name: what the item returned, or {"failed": reason}}} beside `head`.
        head: what else stands in the file.
    """
    if args.answers is not None:
        serve(items, [tuple(each) for each in args.left], args.answers)
        return 0
    asked = [each for each in items if each[0] in args.parts]
    results: dict[str, dict[str, Any]] = {}
    for (part, name), result in answers(module, arguments, args.limit, items, asked):
        results.setdefault(part, {})[name] = result
        print(f"{part}: {name}: {shown(result)}", flush=True)
        write_atomic(file, json.dumps({**head, **results}, indent=1).encode())
    return int(any(is_failure(result) for part in results.values() for result in part.values()))


def answers(
    module: str, arguments: list[str], limit: float, items: Items, left: list[tuple[str, str]]
) -> Iterator[tuple[tuple[str, str], Any]]:
    """Give each item's result as it comes."""
    if not limit:
        yield from ((each, measured(items[each])) for each in left)
        return
    while left:
        with further_process(module, arguments, left) as (process, lines):
            with contextlib.suppress(queue.Empty):
                if lines.get(timeout=_START_SECONDS) is None:
                    lines.put(None)
            while left:
                try:
                    line = lines.get(timeout=limit)
                except queue.Empty:
                    line = {"failed": f"took longer than {limit:g} s"}
                if line is None:
                    line = {"failed": f"its process ended with {process.wait()}"}
                yield left.pop(0), line.get("result", line)
                if "result" not in line:
                    break


@contextlib.contextmanager
def further_process(
    module: str, arguments: list[str], left: list[tuple[str, str]]
) -> Iterator[tuple[subprocess.Popen[bytes], queue.Queue[Any]]]:
    """Start a process for the items that are left; gives it and its answers, None after the last."""
    reader, writer = os.pipe()
    command = [sys.executable, "-m", module, *arguments, "--answers", str(writer), "--left", json.dumps(left)]
    process = subprocess.Popen(command, pass_fds=[writer], start_new_session=True)
    os.close(writer)
    lines: queue.Queue[Any] = queue.Queue()

    def read() -> None:
        with os.fdopen(reader) as pipe:
            for line in pipe:
                lines.put(json.loads(line))
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    try:
        yield process, lines
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def serve(items: Items, left: list[tuple[str, str]], descriptor: int) -> None:
    """Measure items and answer, until all is done or one has failed: what it left behind would spoil the next one."""
    with os.fdopen(descriptor, "w") as pipe:
        print("{}", file=pipe, flush=True)  # imports are done: the first item's time begins
        for each in left:
            result = measured(items[each])
            print(json.dumps(result if is_failure(result) else {"result": result}), file=pipe, flush=True)
            if is_failure(result):
                return
            gc.collect()
            torch.cuda.empty_cache()


def measured(item: Callable[[], Any]) -> Any:
    try:
        return item()
    except (ImportError, NotImplementedError) as error:
        return {"left out": str(error)}
    except Exception as error:
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"[:500]}


def is_failure(result: Any) -> bool:
    return isinstance(result, dict) and set(result) == {"failed"}


def shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {shown(item)}" for name, item in value.items())
    return f"{value:,.3f}" if isinstance(value, float) else str(value)
