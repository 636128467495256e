"""One contender of `benchmarks.gnn` in a process of its own: `python -m benchmarks.gnn_worker MODULE:CLASS SETTINGS`.

Environment, allocator, threads and peak memory are then its own. The parent asks by JSON lines on stdin and reads JSON
lines from stdout: `{"job": NAME, "units": N}` runs N units (steps) of a job and answers with seconds, `{"ask": NAME}`
calls a method that returns plain values. What else writes to stdout goes to stderr.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tasks.processes.children import die_with_parent

Job = Callable[[int], None]


@dataclass(frozen=True)
class Settings:
    """What all contenders are told."""

    graph: str
    """Folder of a graph that graphmill prepared: .npy files and a manifest."""
    threads: int = 2
    fanout: tuple[int, ...] = (15, 10, 5)
    """From the seeds outwards."""
    batch_size: int = 1024
    hidden_dim: int = 256
    heads: int = 4
    dropout: float = 0.5
    learning_rate: float = 0.003
    seed: int = 0
    device: str = "cpu"
    options: dict[str, Any] = field(default_factory=dict)
    """The contender's own."""

    @classmethod
    def parse(cls, text: str) -> Settings:
        values = json.loads(text)
        return cls(**{**values, "fanout": tuple(values["fanout"])})

    def dump(self) -> str:
        return json.dumps(dataclasses.asdict(self))


class Arrays:
    """The graph's arrays by name, read into memory as a peer's script would."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.manifest: dict[str, Any] = json.loads((self.folder / "manifest.json").read_text())

    def __getitem__(self, name: str) -> np.ndarray:
        return np.load(self.folder / self.manifest["arrays"][name]["path"])

    @property
    def num_nodes(self) -> int:
        return int(self.manifest["num_nodes"])

    def coo(self) -> tuple[np.ndarray, np.ndarray]:
        """Sources and destinations of all edges, int64 (E,)."""
        indptr = self["csc_indptr"]
        destinations = np.repeat(np.arange(self.num_nodes, dtype=np.int64), np.diff(indptr))
        return self["csc_indices"].astype(np.int64), destinations


class Contender:
    """Base: a class with jobs."""

    jobs: dict[str, Job]

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.jobs = {}

    def versions(self) -> dict[str, str]:
        """Versions worth printing."""
        return {}

    def threads_used(self) -> None:
        """Set the libraries' own threads."""
        import torch

        torch.set_num_threads(self.settings.threads)

    def finish(self) -> None:
        """Wait for a device that works asynchronously."""
        if self.settings.device == "cuda":
            import torch

            torch.cuda.synchronize()


class Operator(Contender):
    """One operator on the whole graph, forward and backward, on drawn inputs. Options: `width` (of all heads), `dtype`.

    `aggregate` has rows x (N, width); `attend` rows (N, heads, width / heads) and scores of sources and targets.
    """

    job = "aggregate"
    score_shape: tuple[int, ...] = ()
    """Of each head's score, besides nodes and heads."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        import torch

        self.threads_used()
        arrays, device, width = Arrays(settings.graph), settings.device, settings.options["width"]
        self.prepare(arrays)
        torch.manual_seed(0)
        dtype, num_nodes = getattr(torch, settings.options.get("dtype", "float32")), arrays.num_nodes
        shape = (num_nodes, width) if self.job == "aggregate" else (num_nodes, settings.heads, width // settings.heads)
        self.x = torch.randn(shape, device=device).to(dtype).requires_grad_()
        self.inputs = [self.x]
        if self.job == "attend":
            scores = (num_nodes, settings.heads, *self.score_shape)
            self.source, self.target = (torch.randn(scores, device=device, requires_grad=True) for _ in range(2))
            self.inputs += [self.source, self.target]
        self.grad = torch.randn(shape, device=device).to(dtype)
        self.jobs = {self.job: self._run}

    def prepare(self, arrays: Arrays) -> None:
        """Make the graph."""
        raise NotImplementedError

    def forward(self) -> Any:
        raise NotImplementedError

    def _run(self, units: int) -> None:
        for _ in range(units):
            for tensor in self.inputs:
                tensor.grad = None
            self.forward().backward(self.grad)


def shuffled(items: np.ndarray, batch_size: int, seed: int) -> Iterator[np.ndarray]:
    """Yield batches for ever: epoch after epoch in another order; a short last batch is left out."""
    epoch = 0
    while True:
        order = np.random.default_rng([seed, epoch]).permutation(len(items))
        for first in range(0, max(1, len(items) - batch_size + 1), batch_size):
            yield items[order[first : first + batch_size]]
        epoch += 1


def status_bytes(name: str) -> int:
    """Return a memory field of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


class Memory:
    """High-water marks of this process: mapped files that it touched count, as pages it needs."""

    def __init__(self) -> None:
        self.imported = status_bytes("VmRSS")
        self.before = self.imported

    def reset(self) -> None:
        """Forget the high-water mark; `before` is what is there now."""
        Path("/proc/self/clear_refs").write_text("5")
        self.before = status_bytes("VmRSS")

    def report(self, device: str) -> dict[str, int]:
        """Bytes: the peak, the peak beyond what imports take, the peak beyond the last reset."""
        peak = status_bytes("VmHWM")
        found = {"peak": peak, "beyond_imports": peak - self.imported, "beyond_reset": peak - self.before}
        if device == "cuda":
            import torch

            found["device_peak"] = torch.cuda.max_memory_allocated()
        return found


def serve(answers: Any, contender: Contender, memory: Memory) -> None:
    """Answer the parent until it closes the pipe."""

    def answer(values: dict[str, Any]) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    answer({"ready": True, "jobs": list(contender.jobs), "versions": contender.versions()})
    for line in sys.stdin:
        request = json.loads(line)
        if "job" in request:
            job, units = contender.jobs[request["job"]], request["units"]
            cpu, wall = time.process_time(), time.perf_counter()
            job(units)
            contender.finish()
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            answer({"wall": wall / units, "cpu": cpu / units})
        elif request["ask"] == "reset_memory":
            memory.reset()
            answer({})
        elif request["ask"] == "memory":
            answer(memory.report(contender.settings.device))
        else:
            answer(getattr(contender, request["ask"])(**request.get("values", {})))


def main() -> None:
    # Compute threads, samplers and runtimes of all kinds share the cores that the benchmark allows.
    settings = Settings.parse(sys.argv[2])
    if settings.device == "cpu":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: settings.threads])
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module, _, name = sys.argv[1].partition(":")
    try:
        kind: type[Contender] = getattr(importlib.import_module(module), name)
        memory = Memory()
        serve(answers, kind(settings), memory)
    except Exception as error:
        traceback.print_exc()
        answers.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")
        answers.flush()
        sys.exit(1)


if __name__ == "__main__":
    main()
