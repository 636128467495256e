"""What `benchmarks.gpu` times: graphmill's training step by step, and PyG's loader and layers on the same graph."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812

from benchmarks.gnn_worker import Arrays
from configs.schema import Recipe
from models.block import Batch
from tasks.processes.device import use_threads, wait_for
from tasks.train.gradients.engine import GradientEngine
from tasks.train.gradients.pipeline import Pipeline, Upload, pipeline_sizes
from tasks.train.gradients.steps import set_determinism, set_kernels, step_products
from tasks.train.job import AnyJob, GnnJob
from tasks.train.strategies.base import Ranks

STAGES = ("make", "upload", "forward", "backward", "optimizer")


class Clock:
    """Milliseconds between two points of the device's work; of the CPU's where that is the device."""

    def __init__(self, device: torch.device) -> None:
        self.on_gpu = device.type == "cuda"

    def mark(self) -> Any:
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()  # type: ignore[no-untyped-call]
        return event

    def between(self, first: Any, second: Any) -> float:
        if not self.on_gpu:
            return 1000 * float(second - first)
        torch.cuda.synchronize()
        return float(first.elapsed_time(second))


@contextmanager
def counted_waits(device: torch.device) -> Iterator[list[str]]:
    """Collect where the CPU waits for the GPU inside; the list is filled at the end."""
    found: list[str] = []
    if device.type != "cuda":
        yield found
        return
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield found
    finally:
        torch.cuda.set_sync_debug_mode("default")
    found += [f"{entry.filename}:{entry.lineno}" for entry in caught if "called a synchronizing" in str(entry.message)]


def steady_milliseconds(take: Callable[[], object], count: int, ready: int, device: torch.device) -> float:
    """Return the milliseconds of one of `count` steps while batches are made as fast as they are taken.

    `ready`: batches that background threads or processes make ahead. Those that lay there when the clock started would
    count as made in no time, so that many steps are taken before. Those that are made after it has stopped would take
    the next side's cores, so they are waited for: made alone a batch takes no longer than a step.
    """
    for _ in range(ready):
        take()
    wait_for(device)
    began = time.perf_counter()
    for _ in range(count):
        take()
    wait_for(device)
    seconds = (time.perf_counter() - began) / count
    time.sleep(ready * seconds)
    return 1000 * seconds


class Ours:
    """A training of graphmill's, on one device, taken step by step."""

    def __init__(self, recipe: Recipe, folder: Path, work: Path, device: torch.device) -> None:
        work.mkdir(parents=True, exist_ok=True)
        job: AnyJob = GnnJob.make(recipe, folder, "benchmark", work)
        use_threads(job.train.threads)
        self.device, self.engine = device, GradientEngine(job, Ranks(), device)  # type: ignore[arg-type]
        self.config, self.batches = self.engine.config, self.engine.batches
        self.engine.model.train()
        self.ahead, self.threads = pipeline_sizes(self.config, device)
        self.number = 0
        self.pipeline: Pipeline | None = None

    def steps(self, count: int) -> float:
        """Take so many steps as the training takes them; return milliseconds a step."""
        if self.pipeline is None:
            self.pipeline = Pipeline(
                self.batches.make,
                self.number,
                self.batches.total,
                ahead=self.ahead,
                threads=self.threads,
                device=self.device,
            )
        set_determinism(self.config)  # both are the process's, and another side's may be others
        set_kernels(self.config, self.device)
        self.engine.pipeline = self.pipeline
        return steady_milliseconds(self.engine.step, count, self.ahead, self.device)

    def close(self) -> None:
        if self.pipeline is not None:
            self.pipeline.close()

    def stages(self, count: int) -> dict[str, Any]:
        """Medians of milliseconds by stage, one after the other, and how often a step waits for the GPU, and where."""
        clock, upload = Clock(self.device), Upload(self.device) if self.device.type == "cuda" else None
        times: dict[str, list[float]] = {name: [] for name in STAGES}
        waits: list[list[str]] = []
        for number in range(count + 2):  # the first ones compile
            began = time.perf_counter()
            batch = self.batches.make(number)
            made = 1000 * (time.perf_counter() - began)
            with counted_waits(self.device) as found, step_products(self.config):
                marks = self._stages(batch, upload, clock, number + 1)
            if number < 2:
                continue
            waits.append(found)
            for name, value in zip(STAGES, [made, *map(clock.between, marks, marks[1:])], strict=True):
                times[name].append(value)
        places = sorted({place for found in waits for place in found})
        return {
            **{name: statistics.median(values) for name, values in times.items()},
            "waits": statistics.median(len(found) for found in waits),
            "where": places,
        }

    def _stages(self, batch: Batch, upload: Upload | None, clock: Clock, number: int) -> list[Any]:
        optimization, marks = self.engine.optimization, [clock.mark()]
        there = batch.to(self.device) if upload is None else upload.receive(*upload.send(lambda: batch))
        marks.append(clock.mark())
        loss = optimization.loss(there)
        marks.append(clock.mark())
        loss.backward()  # type: ignore[no-untyped-call]
        marks.append(clock.mark())
        optimization.step(number)
        marks.append(clock.mark())
        return marks


class Pyg:
    """PyG's NeighborLoader, worker processes and pinned memory, SAGEConv with `trim_to_layer`, Adam, on one device."""

    def __init__(self, recipe: Recipe, folder: Path, device: torch.device, workers: int) -> None:
        from torch_geometric.data import Data
        from torch_geometric.loader import NeighborLoader

        from benchmarks.gnn_pyg import Sage, count_hops

        arrays, loader, model = Arrays(str(folder)), recipe.train.loader, recipe.model  # type: ignore[attr-defined]
        source, destination = arrays.coo()
        edges = torch.stack([torch.from_numpy(source), torch.from_numpy(destination)])
        data = Data(torch.from_numpy(arrays["feat"]).float(), edges, y=torch.from_numpy(arrays["label"]))
        fanouts = loader.fanouts(model.num_layers)  # type: ignore[attr-defined]
        self.device, self.count_hops, self.num_hops = device, count_hops, len(fanouts)
        self.loader = NeighborLoader(
            data,
            num_neighbors=list(fanouts),
            input_nodes=torch.from_numpy(arrays["train_idx"].astype("int64")),
            batch_size=loader.batch_size,  # type: ignore[attr-defined]
            shuffle=True,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=device.type == "cuda",
        )
        dims = data.num_features, model.hidden_dim, arrays.manifest["num_classes"], len(fanouts)  # type: ignore[attr-defined]
        self.model = Sage(*dims, model.dropout).to(device)  # type: ignore[attr-defined]
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.003)
        self.endless = self._endless()

    def _endless(self) -> Iterator[Any]:
        while True:
            yield from self.loader

    def steps(self, count: int) -> float:
        """Take so many steps; return milliseconds a step."""
        ready = self.loader.num_workers * (self.loader.prefetch_factor or 0)
        return steady_milliseconds(self._step, count, ready, self.device)

    def _step(self) -> None:
        batch = next(self.endless)
        hops = (batch.get("num_sampled_nodes"), batch.get("num_sampled_edges"))
        if hops[0] is None:
            hops = self.count_hops(batch.edge_index, batch.batch_size, self.num_hops)
        there = batch.to(self.device, non_blocking=True)
        scores = self.model(there.x, there.edge_index, hops)[: batch.batch_size]
        self.optimizer.zero_grad()
        F.cross_entropy(scores, there.y[: batch.batch_size].view(-1)).backward()
        self.optimizer.step()

    def close(self) -> None:
        del self.endless
