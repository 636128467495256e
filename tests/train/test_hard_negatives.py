"""Hard negatives by walks and the max-margin loss against loops; PinSAGE learns what is recommended."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.load import build_recipe
from configs.registry import LOADERS, MODELS
from models.losses import LOSSES
from models.relational.batch import RankingBatch
from models.relational.configs import ImportanceWalksConfig, RankingHeadConfig
from models.relational.ranking import RankingHead
from tasks.controls.ranked.recommendation import RecommendationControls
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.ranked import measure_ranked
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.storage.controls import POPULAR_CONTROL
from tasks.storage.graph_facts import graph_facts
from tasks.train.job import RESULT
from tasks.train.loaders.base import TrainingData
from tasks.train.loaders.typed.ranking import RankingLoader
from tests.models.relational.test_typed_models import plain_pinsage
from tests.ranked_shop import MOMENTS, ranked_shop, store_of
from tests.train.in_process import make_job, train_here


def loader_of(store: Any, **options: Any) -> RankingLoader:
    config = LOADERS.config({"name": "ranking", "batch_size": 16, "negatives": 8, **options})
    walks = ImportanceWalksConfig(neighbors=4, count=30), 2
    return RankingLoader(config, TrainingData(store, None, num_layers=2, walks=walks, seed=3))  # type: ignore[arg-type]


@pytest.mark.parametrize(("new_only", "skip"), [(False, 0), (True, 0), (False, 2)])
def test_hard_ones_are_reached_most_and_not_right(tmp_path: Path, new_only: bool, skip: int) -> None:
    store = store_of(ranked_shop(tmp_path, new_only=new_only))
    loader = loader_of(store, hard_negatives=3, hard_skip=skip)
    links, hard = loader.links, loader.hard
    assert hard is not None
    moment = MOMENTS[3]
    tasks = np.asarray(store["train_idx"], np.int64)
    tasks = tasks[links.moments(tasks) == moment]
    row, column = hard.of_tasks(tasks, moment, 3, 7)
    assert len(row) > len(tasks)
    entities, cuts = links.entities(tasks), np.full(len(tasks), moment)
    indptr, nodes, _ = hard.sampler.visits(entities, cuts, derive_key(7, 14), 31)
    for i, (task, entity) in enumerate(zip(tasks, entities, strict=True)):
        out = set(links.right(np.array([task]))[1].tolist())
        if new_only:
            out |= set(links.past(np.array([entity]), cuts[:1])[1].tolist())
        reached = np.searchsorted(links.candidates, nodes[indptr[i] : indptr[i + 1]]).tolist()
        assert column[row == i].tolist() == [one for one in reached if one not in out][skip : skip + 3]


def test_there_is_one_more_in_each_epoch_and_each_is_its_seeds_own(tmp_path: Path) -> None:
    store = store_of(ranked_shop(tmp_path))
    loader, plain = loader_of(store, hard_negatives=2), loader_of(store)
    for epoch, most in ((0, 0), (1, 1), (2, 2), (9, 2)):
        batch, without = loader.epoch_batch(epoch, 0, 5), plain.epoch_batch(epoch, 0, 5)
        if most == 0:
            assert batch.hard is None
            continue
        assert batch.hard is not None
        assert np.bincount(batch.hard[0].numpy(), minlength=batch.num_seeds).max() == most
        nodes = [one.inputs.types[1].node_ids[one.candidate_rows].numpy() for one in (batch, without)]
        shared = torch.isfinite(batch.log_inclusion)
        np.testing.assert_array_equal(nodes[0][shared.numpy()], nodes[1])
        torch.testing.assert_close(batch.log_inclusion[shared], without.log_inclusion)
        for one in (batch, without):
            one.names = [nodes[one is without][place] for place in one.right[1].tolist()]  # type: ignore[attr-defined]
        assert batch.names == without.names
        assert not set(map(tuple, batch.hard.T.tolist())) & set(map(tuple, batch.left_out.T.tolist()))
    assert loader_of(store, hard_negatives=2, negatives=1000).epoch_batch(5, 0, 5).hard is None


@pytest.mark.parametrize("loss", ["softmax", "max_margin"])
def test_losses_with_hard_ones_are_those_of_loops(loss: str) -> None:
    torch.manual_seed(0)
    head = RankingHead(6, (0, 0), RankingHeadConfig(loss=loss, margin=0.7, popularity=False, history=False), 0.0)
    head = head.double()
    source = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    candidate = torch.randn(7, 6, dtype=torch.float64)
    log_inclusion = torch.log(torch.rand(7, dtype=torch.float64))
    log_inclusion[[5, 6]] = torch.inf  # these are there for single seeds
    batch = RankingBatch(
        [], None, torch.zeros(4, dtype=torch.int64), 3, 0,  # type: ignore[arg-type]
        right=torch.tensor([[0, 1, 1, 2], [2, 0, 4, 1]]),
        left_out=torch.tensor([[0, 1, 1, 2, 2], [2, 0, 4, 1, 3]]),
        hard=torch.tensor([[0, 0, 1], [5, 3, 6]]),
        log_inclusion=log_inclusion,
    )  # fmt: skip
    found = LOSSES["ranking"](head.of_batch(source, candidate, batch), batch.target)
    [gradient] = torch.autograd.grad(found, source)
    out = set(map(tuple, batch.left_out.T.tolist()))
    hard = set(map(tuple, batch.hard.T.tolist()))
    scores, losses = source @ candidate.T / 6**0.5, []
    for i, j in batch.right.T.tolist():
        others = [c for c in range(7) if (i, c) not in out and (c < 5 or (i, c) in hard)]
        if loss == "softmax":
            chances = {c: 1.0 if (i, c) in hard else log_inclusion[c].exp() for c in others}
            total = scores[i, j].exp() + sum(scores[i, c].exp() / chances[c] for c in others)
            losses.append(total.log() - scores[i, j])
        else:
            misses = [(0.7 + scores[i, c] - scores[i, j]).clamp(min=0) for c in others]
            losses.append(sum(misses) / len(misses))
    wanted = torch.stack(losses).mean()
    assert found.item() == pytest.approx(wanted.item(), rel=1e-9)
    [other] = torch.autograd.grad(wanted, source)
    torch.testing.assert_close(gradient, other)
    assert torch.isfinite(gradient).all()


def test_entities_and_candidates_read_what_walks_visit(tmp_path: Path) -> None:
    """Both types' convolutions are the formula, edge by edge, on a batch of both."""
    store = store_of(ranked_shop(tmp_path))
    batch = loader_of(store).epoch_batch(0, 0, 1)
    facts = replace(graph_facts(store.manifest), fanouts=((1, 1),) * 6)
    options = {"name": "pinsage", "hidden_dim": 12, "dropout": 0, "id_embedding": {"types": ()}}
    model: Any = MODELS.create(MODELS.config(options), facts)
    x = model.encoder(batch.inputs)
    for block, layer in zip(batch.blocks, model.layers, strict=True):
        x = {t: some[: block.num_src[t]].detach().requires_grad_() for t, some in x.items()}
        y = layer.conv(block, x)
        assert sorted(y) == [0, 1]
        for t in (0, 1):
            assert len(block.by_number[-1 - t].indices) > 0
            wanted = torch.stack([plain_pinsage(layer.conv, block, x, t, v) for v in range(block.num_dst[t])])
            torch.testing.assert_close(y[t], wanted, rtol=1e-4, atol=1e-5)
        x = y


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["softmax", "max_margin"])
def test_pinsage_learns_whose_style_is_which(tmp_path: Path, loss: str) -> None:
    parent = ranked_shop(tmp_path / "graph", num_customers=150, buys=3000)
    walks = {"count": 20, "neighbors": 8}
    ranking = {"loss": loss, "history": False}
    given = {
        "name": "small",
        "dataset": {"name": "synthetic_shop", "predict": "products"},
        "model": {"name": "pinsage", "hidden_dim": 16, "dropout": 0, "walks": walks, "ranking": ranking},
        "train": {"loader": {"name": "ranking", "batch_size": 64, "negatives": 20, "hard_negatives": 2}, "epochs": 6},
    }
    job = make_job(build_recipe(given, ["train.threads=1", "train.learning_rate=0.02"]), parent, tmp_path / "work")
    train_here(job)
    store = store_of(parent)
    popular = dict(RecommendationControls(store).predictions("valid", Prediction()))[POPULAR_CONTROL].ranked
    metric = json.loads((job.work / RESULT).read_text())["best_metric"]
    assert metric > 1.3 * measure_ranked(popular, 10)["map@10"]
