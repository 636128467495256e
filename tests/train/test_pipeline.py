"""The pipeline that makes batches ahead: order, bounds, errors, threads, memory."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from configs.registry import MODELS
from configs.training import TrainConfig
from models.block import Batch, Block, Inputs, Mover
from models.losses.chosen import loss_of
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.rows.gather import gather_side_by_side
from tasks.storage.graph_facts import graph_facts
from tasks.train.gradients.pipeline import THREAD_NAME, Pipeline, Upload, pipeline_sizes
from tests.loaders import make_loader
from tests.ranked_shop import store_of
from tests.support import node_graph

CPU = torch.device("cpu")


def numbered(number: int) -> Batch:
    ids = torch.tensor([number])
    return Batch([], Inputs(ids), ids, 1)


def number_of(batch: Batch) -> int:
    return int(batch.target)


@pytest.fixture
def one_torch_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


@pytest.mark.parametrize(("ahead", "workers"), [(0, 1), (1, 1), (3, 2), (2, 5), (40, 3)])
def test_batches_come_in_order_whoever_is_done_first(ahead: int, workers: int) -> None:
    rng = random.Random(0)

    def make(number: int) -> Batch:
        time.sleep(rng.random() / 500)
        return numbered(number)

    with Pipeline(make, 7, 37, ahead=ahead, threads=workers, device=CPU) as pipeline:
        assert [number_of(batch) for batch in pipeline] == list(range(7, 37))
        assert threads() == []
        assert list(pipeline) == []
    assert list(Pipeline(make, 5, 5, ahead=ahead, threads=workers, device=CPU)) == []


def test_without_look_ahead_the_caller_makes_each_batch_when_it_asks() -> None:
    made: list[tuple[int, int]] = []

    def make(number: int) -> Batch:
        made.append((number, threading.get_ident()))
        return numbered(number)

    pipeline = Pipeline(make, 0, 5, ahead=0, threads=4, device=CPU)
    next(pipeline)
    next(pipeline)
    assert made == [(0, threading.get_ident()), (1, threading.get_ident())]


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_so_many_batches_are_made_ahead_and_no_more(workers: int) -> None:
    made: list[int] = []

    def make(number: int) -> Batch:
        made.append(number)
        return numbered(number)

    with Pipeline(make, 0, 100, ahead=3, threads=workers, device=CPU) as pipeline:
        assert threads() == []  # nothing happens before the first batch is wanted
        for taken in range(1, 20):
            assert number_of(next(pipeline)) == taken - 1
            wait_for(lambda taken=taken: len(made) == taken + 3)
            assert len(threads()) == min(3, workers)
        time.sleep(0.05)
        assert sorted(made) == list(range(22))


def test_several_threads_make_batches_at_once() -> None:
    meeting = threading.Barrier(3, timeout=10)

    def make(number: int) -> Batch:
        meeting.wait()  # passes only when three threads are here
        return numbered(number)

    with Pipeline(make, 0, 6, ahead=3, threads=3, device=CPU) as pipeline:
        assert [number_of(batch) for batch in pipeline] == list(range(6))


@pytest.mark.parametrize("ahead", [0, 4])
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_an_error_comes_where_its_batch_would_have_come(ahead: int, kind: type[BaseException]) -> None:
    made: list[int] = []

    def make(number: int) -> Batch:
        made.append(number)
        if number == 2:
            raise kind("broken")
        time.sleep(0.02)  # batch 2 fails long before 0 and 1 are done
        return numbered(number)

    pipeline = Pipeline(make, 0, 1000, ahead=ahead, threads=4, device=CPU)
    assert [number_of(next(pipeline)), number_of(next(pipeline))] == [0, 1]
    with pytest.raises(kind, match="broken"):
        next(pipeline)
    assert threads() == []
    assert len(made) <= 3 + ahead
    if ahead:
        assert list(pipeline) == []


def test_leaving_early_stops_the_threads_and_forgets_what_they_made() -> None:
    with Pipeline(numbered, 0, 1000, ahead=4, threads=2, device=CPU) as pipeline:
        for batch in pipeline:
            if number_of(batch) == 3:
                break
        assert len(threads()) == 2
    assert threads() == []
    assert list(pipeline) == []
    pipeline.close()

    def leave(pipeline: Pipeline) -> None:
        with pipeline:
            next(pipeline)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        leave(Pipeline(numbered, 0, 1000, ahead=4, threads=2, device=CPU))
    assert threads() == []


def test_on_a_gpu_batches_are_pinned_and_copied_on_a_stream_of_their_own() -> None:
    notes: list[Any] = []

    def note(name: str, result: Any = None) -> Any:
        """A function that writes down its name and what it was given."""

        def call(*given: Any) -> Any:
            notes.append((name, *map(str, given)))
            return result

        return call

    device = torch.device("cuda:1")
    on_device = SimpleNamespace(name="on device", record_stream=note("in use"))
    batch = SimpleNamespace(pin_memory=note("pin", SimpleNamespace(to=note("copy", on_device))))
    cuda: Any = SimpleNamespace(
        Stream=lambda device: "side",
        device=note("device", nullcontext()),
        stream=note("on", nullcontext()),
        Event=lambda: SimpleNamespace(record=note("record")),
        current_stream=lambda device: SimpleNamespace(wait_event=lambda event: notes.append(("wait",))),
    )
    pipeline = Pipeline(lambda number: batch, 0, 2, ahead=0, threads=1, device=device)  # type: ignore[arg-type,return-value]
    pipeline._ahead = pipeline._num_threads = 1
    pipeline._upload = Upload(device, cuda)
    assert [got.name for got in pipeline] == ["on device"] * 2  # type: ignore[attr-defined]
    sent = [("device", "cuda:1"), ("on", "side"), ("pin",), ("copy", "cuda:1"), ("record", "side")]
    assert notes[:5] == sent
    names = [name for name, *_ in notes]
    assert sorted(names) == sorted(2 * [*(name for name, *_ in sent), "wait", "in use"])
    assert all(names.index("wait") > names.index(name) for name, *_ in sent)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_halves_of_a_matrix_travel_as_one(dtype: torch.dtype) -> None:
    table = np.arange(60, dtype=np.float32).reshape(10, 6)
    own, mean = gather_side_by_side(table, -table, np.array([3, 1, 4]), dtype)
    moved: list[tuple[int, ...]] = []

    def move(tensor: torch.Tensor) -> torch.Tensor:
        moved.append(tuple(tensor.shape))
        return tensor.clone()

    outer = Block(torch.tensor([0, 1, 1, 2]), torch.empty(0, dtype=torch.int32), 3, mean=mean)
    before = Batch([outer], Inputs(torch.arange(3), own), torch.zeros(3, 5)[:, :1], 3)
    after = before._map(Mover(move))
    found = after.inputs.feat, after.blocks[0].mean
    assert moved.count((3, 12)) == 1
    assert (3, 1) in moved  # a column of another matrix goes alone
    for tensor, expected in zip(found, (own, mean), strict=True):
        assert torch.equal(tensor, expected)
        assert tensor.stride() == expected.stride()
    assert found[1].data_ptr() - found[0].data_ptr() == 6 * own.itemsize  # type: ignore[union-attr]
    again = after._map(Mover(lambda tensor: tensor))
    assert again is after


@pytest.mark.usefixtures("one_torch_thread")
def test_memory_does_not_grow_with_epochs(tmp_path: Path) -> None:
    store = store_of(node_graph(tmp_path, num_nodes=3000, dim=64))
    loader = make_loader("neighbor", store, fanout=(5, 5))
    model = MODELS.create(
        MODELS.config({"name": "graphsage", "hidden_dim": 16, "num_layers": 2}), graph_facts(store.manifest)
    )
    optimizer = torch.optim.Adam(model.parameters())
    steps, epochs, size = 6, 20, loader.num_seeds // 6

    def make(step: int) -> Batch:
        epoch, number = divmod(step, steps)
        order = np.random.Generator(np.random.Philox(key=derive_key(0, epoch))).permutation(loader.num_seeds)
        return loader.batch(order[number * size : (number + 1) * size], derive_key(1, step))

    resident, sizes = [], []
    with Pipeline(make, 0, steps * epochs, ahead=3, threads=2, device=CPU) as pipeline:
        for step, batch in enumerate(pipeline):
            optimizer.zero_grad()
            loss_of("multiclass")(model(batch), batch.target, batch.num_seeds).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            sizes.append(batch.inputs.feat.nbytes)
            if step + 1 in (3 * steps, epochs * steps):
                gc.collect()  # seconds, where many tests ran before
                resident.append(psutil.Process().memory_info().rss)
    grown = resident[1] - resident[0]
    kept_if_leaked = (epochs - 3) * steps * min(sizes)
    assert kept_if_leaked > 32 << 20, "the test would not see a leak"
    assert grown < 8 << 20, f"{grown >> 20} MiB more after epoch 20 than after epoch 3"


@pytest.mark.parametrize(
    ("options", "device", "expected"),
    [
        ({}, "cpu", (2, 1)),
        ({"sampling_threads": 2}, "cpu", (2, 2)),
        ({"prefetch": 0}, "cpu", (0, 1)),
        ({}, "cuda", (28, 14)),
        ({"num_ranks": 4}, "cuda", (4, 2)),
        ({"num_ranks": 16}, "cuda", (2, 1)),
        ({"prefetch": 3}, "cuda", (3, 3)),
        ({"prefetch": 0}, "cuda", (0, 1)),
        ({"sampling_threads": 1, "prefetch": 5}, "cuda", (5, 1)),
        ({"sampling": "device"}, "cuda", (2, 1)),
    ],
)
def test_a_gpu_gets_as_many_threads_as_there_are_cores_for(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], device: str, expected: tuple[int, int]
) -> None:
    monkeypatch.setattr("tasks.train.gradients.pipeline.cores", lambda: 16)
    assert pipeline_sizes(TrainConfig(**options), torch.device(device)) == expected
