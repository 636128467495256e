"""Embeddings in CPU memory: optimizers of rows, training, resuming, ranks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import RecipeError
from tasks.inference.predictor import Predictor
from tasks.kinds.of import predict
from tasks.storage.graph_facts import graph_facts
from tasks.train.embeddings.host_tables import RowAdagrad, SparseAdam, SparseEmbedding, coalesce
from tasks.train.job import BEST, LAST, Job
from tasks.train.state import checkpoint
from tasks.train.strategies.base import Ranks
from tests.ranked_shop import store_of
from tests.train.in_process import build_model, make_engine, make_job, own_settings, run_engine, stopped_at
from tests.train.test_training import partition, recipe, records, weights
from tests.train.two_processes import run_two_ranks

SPARSE = ("train.embeddings=sparse", "train.loader=edge", "train.loader.batch_size=512", "train.epochs=4")


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    with own_settings():
        yield


def job(graph: Any, work: Path, *overrides: str, task: str = "link") -> Job:
    return make_job(recipe(task, *overrides), graph, work)


@pytest.mark.parametrize("n", [0, 1, 5, 700])
def test_coalescing_sums_equal_ids_and_keeps_a_ranks_own(n: int) -> None:
    rng = np.random.default_rng(n)
    ids, rows = rng.integers(0, 9, n), rng.standard_normal((n, 3)).astype(np.float32)
    expected = np.zeros((9, 3))
    np.add.at(expected, ids, rows.astype(np.float64))
    slots = np.full(9, -1, np.int32)
    for number, count in ((0, 1), (0, 2), (1, 2), (2, 3)):
        own_ids, own_rows = ids.copy(), rows.copy()
        kept = coalesce(own_ids, own_rows, slots, number, count)
        assert sorted(own_ids[:kept].tolist()) == sorted(v for v in set(ids.tolist()) if v % count == number)
        assert np.allclose(own_rows[:kept], expected[own_ids[:kept]], atol=1e-4)
        assert np.all(slots == -1)


def gradients(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    count = [700, 1, 0, 300, 2][step]
    ids = torch.randperm(1000, generator=generator)[:count]
    return ids, torch.randn(count, 7, generator=generator)


def test_sparse_adam_is_torchs() -> None:
    table = torch.randn(1000, 7, generator=torch.Generator().manual_seed(9))
    expected = torch.nn.Parameter(table.clone())
    theirs = torch.optim.SparseAdam([expected], lr=0.05)
    ours = SparseAdam(table, torch.zeros)
    for step in range(5):
        ids, grads = gradients(step)
        expected.grad = torch.sparse_coo_tensor(ids[None], grads, expected.shape, check_invariants=True)
        theirs.step()
        ours.step(ids, grads, 0.05, step + 1)
        torch.testing.assert_close(table, expected.detach(), rtol=1e-5, atol=1e-6)


def test_row_adagrad_is_its_formula() -> None:
    table = torch.randn(1000, 7, generator=torch.Generator().manual_seed(9))
    expected, sums = table.double().numpy().copy(), np.zeros(1000)
    ours = RowAdagrad(table, torch.zeros)
    for step in range(5):
        ids, grads = gradients(step)
        g, rows = grads.double().numpy(), ids.numpy()
        sums[rows] += (g**2).mean(1)
        expected[rows] -= 0.05 * g / (np.sqrt(sums[rows]) + 1e-10)[:, None]
        ours.step(ids, grads, 0.05, step + 1)
        assert np.allclose(table.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert np.allclose(ours.sums.numpy(), sums, rtol=1e-5)


@pytest.mark.parametrize("optimizer", ["row_adagrad", "sparse_adam"])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, optimizer: str) -> None:
    graph = partition(tmp_path / "g", "link")
    overrides = (*SPARSE, f"train.embeddings.optimizer={optimizer}", "train.clip_norm=1", "train.accumulate_steps=2")
    calm, disturbed = (job(graph, tmp_path / name, *overrides) for name in ("calm", "disturbed"))
    run_engine(make_engine(calm))
    first = make_engine(disturbed)
    with stopped_at(2 * first.steps_a_round + 1):
        run_engine(first)
    second = make_engine(disturbed)
    assert (second.progress.epoch, second.progress.step_in_epoch) == (2, 1)
    run_engine(second)
    assert records(calm.work) == records(disturbed.work)
    for name in (BEST, LAST):
        ours, theirs = weights(disturbed.work, name), weights(calm.work, name)
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    lines = [line["train/loss"] for line in records(calm.work) if "train/loss" in line]
    assert lines[-1] < lines[0]


def test_the_best_weights_keep_their_table_off_the_device(tmp_path: Path) -> None:
    graph = partition(tmp_path / "g", "link")
    made = job(graph, tmp_path / "work", *SPARSE, "train.epochs=2")
    trained = make_engine(made)
    before = trained.model.encoder.embedding.weight.clone()  # type: ignore[union-attr]
    run_engine(trained)
    model = checkpoint.load_model(made.work / BEST)
    assert model.encoder.embedding.weight.device.type == "cpu"  # type: ignore[union-attr]
    assert {p.device.type for p in model.to("meta").parameters()} == {"meta"}
    assert model.encoder.embedding.weight.device.type == "cpu"  # type: ignore[union-attr]
    model = checkpoint.load_model(made.work / BEST)
    table = trained.optimization.embedding.weight  # type: ignore[union-attr]
    assert not torch.equal(before, table)
    assert checkpoint.count_parameters(model) == checkpoint.count_parameters(trained.model)
    predictor = Predictor(store_of(graph))
    if torch.equal(model.encoder.embedding.weight, table):  # the last epoch was the best
        ours, theirs = (predict(predictor, m, "test") for m in (trained.model, model))
        assert np.allclose(ours.positive, theirs.positive, atol=1e-6)
    assert trained.optimization.embedding._taken == []  # type: ignore[union-attr]


def test_a_look_up_without_gradients_is_forgotten(tmp_path: Path) -> None:
    made = job(partition(tmp_path / "g", "link"), tmp_path / "work", *SPARSE)
    table = SparseEmbedding(10, 3, made.train, Ranks(), seed=1)
    with torch.no_grad():
        assert torch.equal(table(torch.tensor([3, 3, 0])), table.weight[[3, 3, 0]])
    assert table._taken == []
    (table(torch.tensor([4, 4, 2])) * torch.tensor([[1.0], [2.0], [5.0]])).sum().backward()
    ids, rows = table.take_gradients()
    assert dict(zip(ids.tolist(), rows[:, 0].tolist(), strict=True)) == {4: 3.0, 2: 5.0}
    assert list(table.parameters()) == list(table.buffers()) == []


def test_nothing_to_embed_is_refused(tmp_path: Path) -> None:
    node, link, graph = (partition(tmp_path / task, task) for task in ("node", "link", "graph"))

    def build(parent: Any, task: str, *overrides: str) -> Any:
        made = job(parent, tmp_path / "work", *overrides, task=task)
        return build_model(made, graph_facts(parent.manifest), Ranks())

    for parent, task in ((node, "node"), (graph, "graph")):
        with pytest.raises(RecipeError, match=r"train\.embeddings=sparse: .* nothing to embed; remove the option"):
            build(parent, task, "train.embeddings=sparse")
    for idle in ("optimizer", "learning_rate"):
        with pytest.raises(RecipeError, match=f"train.embeddings: unknown key '{idle}'"):
            build(link, "link", f"train.embeddings.{idle}=0.5")


def test_two_ranks_share_a_table_and_learn_as_dense_embeddings_do(tmp_path: Path) -> None:
    graph = partition(tmp_path / "g", "link")
    overrides = ["train.embeddings=sparse", "train.loader=edge", "train.loader.batch_size=128", "train.clip_norm=0.5"]
    run_two_ranks("tests.train.two_ranks", job(graph, tmp_path / "work", *overrides))
