"""The head of learnt vectors that scores pairs by an MLP, as OGB's examples of node2vec do."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from models.vectors.base import VectorModel
from tasks.arrays import Array, blocks
from tasks.sampling.links.negatives import NegativeSampler
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.storage.graph_store import GraphStore

_SEED = 20_261_124
_BATCH, _MOST_EDGES = 2048, 1 << 20
"""Edges of a step, and of an epoch; each against one drawn pair. Large batches take as long a pass and fit less."""
_SCALE_EDGES = 16_384
_RATE = 0.003


def fit_pair_mlp(model: VectorModel, store: GraphStore, score: Callable[[], float] | None) -> None:
    """Fit the MLP of a model's head to training edges against uniform pairs that are none, by Adam.

    In a dense graph many uniform pairs are training edges (of ogbl-ddi's one in nine). With these among the negatives
    the MLP learns little of what is sure: in ten epochs Hits@20 of the validation split is 0.08 there, 0.19 without.

    The rate falls to 0 over all epochs, and bad ones end nothing: metrics of the first ranks, such as Hits@20, go up
    and down by half from epoch to epoch.

    Args:
        model: with its vectors; its head is set. `mlp_epochs` of its options says how long.
        store: the graph.
        score: of the validation split, measured after each epoch: the best epoch's head stays; None: there is none, and
            the last one's does.
    """
    head, edges, table, num_epochs = model.head.mlp, store["train_edges"], model.table, model.config.mlp_epochs
    assert isinstance(head, nn.Sequential)
    random, negatives = np.random.default_rng(_SEED), NegativeSampler(store, 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        for layer in head:
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()
    learnt, scale = copy.deepcopy(head), _scale(table, np.asarray(edges[:_SCALE_EDGES]))
    optimizer = torch.optim.Adam(learnt.parameters(), lr=_RATE)
    steps = num_epochs * -(-min(len(edges), _MOST_EDGES) // _BATCH)
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 1 / steps, steps)
    best, best_weights = -np.inf, learnt.state_dict()
    for epoch in range(num_epochs):
        for number, positive in enumerate(_batches(edges, random)):
            drawn = negatives.draw(positive, derive_key(_SEED, epoch, number))
            _step(learnt, optimizer, _products(table, positive) * scale, _products(table, drawn) * scale)
            falling.step()
        _set(head, learnt.state_dict(), scale)
        value = score() if score else 0.0
        if value > best or score is None:
            best, best_weights = value, copy.deepcopy(learnt.state_dict())
        print(f"head: epoch {epoch + 1} of {num_epochs}" + (f", {value:.4f}" if score else ""))
    _set(head, best_weights, scale)


def _batches(edges: Array, random: np.random.Generator) -> Iterator[Array]:
    """Yield the edges of an epoch, in an order of its own."""
    order = random.permutation(len(edges))[:_MOST_EDGES]
    for part in blocks(len(order), _BATCH):
        yield np.asarray(edges[np.sort(order[part])], np.int64)


def _step(learnt: nn.Sequential, optimizer: torch.optim.Optimizer, edges: Tensor, others: Tensor) -> None:
    logits = learnt(torch.cat([edges, others])).squeeze(1)
    target = torch.zeros(len(logits))
    target[: len(edges)] = 1
    optimizer.zero_grad()
    nn.functional.binary_cross_entropy_with_logits(logits, target).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def _products(table: Tensor, pairs: Array) -> Tensor:
    source, target = (table[torch.from_numpy(pairs[:, column])].float() for column in (0, 1))
    return source.mul_(target)


def _scale(table: Tensor, pairs: Array) -> float:
    """Return what makes products about as large as an MLP's weights expect: those of wide unit vectors are tiny."""
    spread = float(_products(table, pairs.astype(np.int64)).std())
    return 1 / spread if np.isfinite(spread) and spread > 0 else 1.0


def _set(head: nn.Sequential, learnt: dict[str, Tensor], scale: float) -> None:
    """Set the head's weights to learnt ones, which expect products times `scale`."""
    with torch.no_grad():
        for name, own in head.state_dict().items():
            own.copy_(learnt[name] * scale if name == "0.weight" else learnt[name])
