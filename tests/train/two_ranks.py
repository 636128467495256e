"""What one of two ranks runs in test_sparse_embeddings.py: `python two_ranks.py JOB`, with a rank's variables set."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from torch import Tensor

from configs.registry import LOADERS
from models.block import Batch
from tasks.sampling.rows.features import FeatureSource
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.train.embeddings.configs import DenseConfig, SparseConfig
from tasks.train.embeddings.host_tables import RowAdagrad, sparse_embedding, take_tables
from tasks.train.gradients.batches import Batches
from tasks.train.gradients.steps import Optimization
from tasks.train.job import Job
from tasks.train.loaders.base import TrainingData
from tasks.train.loaders.config_base import resolve_loader
from tasks.train.ranks.collectives import average_, from_all, gather_rows, joined, sum_over_ranks
from tasks.train.state import checkpoint
from tasks.train.strategies.base import DataParallel, Ranks
from tests.train.in_process import build_model
from tests.train.two_processes import end

TABLE = "encoder.embedding.weight"


def collectives_agree(ranks: Ranks) -> None:
    assert from_all(ranks.rank) == [0, 1]
    assert sum_over_ranks([1.0, ranks.rank]) == [2.0, 1.0]
    tensors = [torch.full((2, 3), float(ranks.rank)), torch.tensor(4.0 * ranks.rank)]
    average_(tensors)
    assert torch.equal(tensors[0], torch.full((2, 3), 0.5))
    assert float(tensors[1]) == 2.0
    for counts in ((2, 0), (0, 0), (1, 3)):
        own = counts[ranks.rank]
        ids, rows = gather_rows(torch.arange(own) + 10 * ranks.rank, torch.full((own, 2), float(ranks.rank)))
        assert ids.tolist() == [*range(counts[0]), *range(10, 10 + counts[1])]
        assert rows[:, 1].tolist() == [0.0] * counts[0] + [1.0] * counts[1]


def train(job: Job, ranks: Ranks, start: dict[str, Tensor], steps: int) -> tuple[Optimization, Tensor]:
    """Take steps from a state (empty: as it comes) with embeddings as the job says; return what there is then."""
    store = GraphStore.open(job.graph)
    torch.manual_seed(1)
    model = build_model(job, graph_facts(store.manifest), ranks)
    embedding = sparse_embedding(model)
    table = model.encoder.embedding.weight  # type: ignore[union-attr]
    if start:
        with torch.no_grad():
            table.copy_(start[TABLE])
        rest = {name: value for name, value in start.items() if name != TABLE}
        model.load_state_dict(rest, strict=False)
    data = TrainingData.of(model, store, FeatureSource.open(store, edges=False))
    loader = LOADERS.create(resolve_loader(job.train, job.model, store.manifest), data)
    strategy = DataParallel(job.train.strategy, ranks)
    batches = Batches(loader, strategy, job.train, 0)
    optimization = Optimization(job.train, model, strategy.wrap(model), "link", ranks, 100)
    rows = RowAdagrad(table.detach(), torch.zeros)
    for number in range(steps):
        batch: Batch = batches.make(number)
        torch.manual_seed(number)
        optimization.backward(batch, 1.0, last=True)
        before, grad = table.detach().clone(), table.grad
        optimization.step(number + 1)
        if grad is not None:  # a parameter: undo its own optimizer's step and take that of a sparse table
            table.detach().copy_(before)
            rows.step(torch.arange(len(table)), grad, SparseConfig().learning_rate, number + 1)
    assert (embedding is None) == (job.train.embeddings.name == "dense")
    return optimization, table.detach()


def main(path: Path) -> None:
    rank = int(os.environ["RANK"])
    ranks = Ranks(rank, 2, rank, 2)
    torch.set_num_threads(1)
    job = Job.load(path)
    with joined(ranks, torch.device("cpu")):
        collectives_agree(ranks)
        fresh, table = train(job, ranks, {}, 0)
        start = {name: value.clone() for name, value in fresh.model.state_dict().items()}
        assert torch.equal(from_all(table)[0], table)  # ranks of one machine share one table
        sparse, table = train(job, ranks, start, 6)
        dense_job = Job(**{**vars(job), "train": job.train.model_copy(update={"embeddings": DenseConfig()})})
        dense, expected = train(dense_job, ranks, start, 6)
        assert not torch.allclose(table, start[TABLE], atol=1e-3)
        torch.testing.assert_close(table, expected, rtol=1e-4, atol=1e-6)
        for name, value in dense.model.state_dict().items():
            torch.testing.assert_close(sparse.model.state_dict()[name], value, rtol=1e-4, atol=1e-5)
        for state in from_all(dense.model.state_dict()):  # statistics of batches included
            assert all(torch.equal(value, dense.model.state_dict()[name]) for name, value in state.items())
        # A checkpoint brings rank 0's table to both.
        file = path.parent / "state.pt"
        if ranks.is_main:
            state = {"model": sparse.model.state_dict(), "embedding": sparse.embedding.tensors()}  # type: ignore[union-attr]
            checkpoint.save_atomic(state, file)
        tables = take_tables(checkpoint.load(file, mapped=True)) if ranks.is_main else None
        fresh.embedding.restore(tables)
        assert torch.equal(fresh.embedding.weight, table)
        for name, value in fresh.embedding.tensors().items():
            assert torch.equal(value, sparse.embedding.tensors()[name])  # type: ignore[union-attr]
    print("done", rank)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    end()
