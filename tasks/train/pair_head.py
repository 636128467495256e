"""The head of learnt vectors that scores pairs by an MLP, as OGB's examples of node2vec do."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from models.vectors import VectorModel
from tasks.arrays import Array, blocks
from tasks.storage.graph_store import GraphStore

_SEED = 20_261_124
_BATCH, _MOST_EDGES = 16_384, 1 << 20
"""Edges of a step, and of an epoch; each against one drawn pair."""
_RATE = 0.001
_MOST_EPOCHS, _PATIENCE, _EPOCHS_UNMEASURED = 50, 5, 10


def fit_pair_mlp(model: VectorModel, store: GraphStore, score: Callable[[], float] | None) -> None:
    """Fit the MLP of a model's head to training edges against pairs drawn at random, by Adam.

    Args:
        model: with its vectors; its head is set.
        store: the graph.
        score: of the validation split, measured after each epoch: the best epoch's head stays, and some epochs without
            a better one end the training; None: there is none, and a fixed number of epochs is taken.
    """
    head = model.head.mlp
    assert isinstance(head, nn.Sequential)
    edges, table = store["train_edges"], model.table
    random = np.random.default_rng(_SEED)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        for layer in head:
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()
        learnt = copy.deepcopy(head)
        scale = _scale(table, np.asarray(edges[:_BATCH]))
        optimizer = torch.optim.Adam(learnt.parameters(), lr=_RATE)
        best, found, since = -np.inf, copy.deepcopy(learnt.state_dict()), 0
        for _ in range(_MOST_EPOCHS if score else _EPOCHS_UNMEASURED):
            order = random.permutation(len(edges))[:_MOST_EDGES]
            for part in blocks(len(order), _BATCH):
                positive = np.asarray(edges[np.sort(order[part])], np.int64)
                drawn = random.integers(0, store.manifest.num_nodes, positive.shape)
                _step(learnt, optimizer, _products(table, positive) * scale, _products(table, drawn) * scale)
            _set(head, learnt.state_dict(), scale)
            value = score() if score else 0.0
            since = 0 if value > best or score is None else since + 1
            if since == 0:
                best, found = value, copy.deepcopy(learnt.state_dict())
            if since == _PATIENCE:
                break
        _set(head, found, scale)


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
