"""PyG's side of `benchmarks.graphs`: its layers in a plain loop, with the settings of OGB's examples for molecules.

GIN is `GINEConv`, DeeperGCN `GENConv` in res+ blocks as in its authors' code for ogbg-molhiv; both with embeddings of
bonds in each layer, batch norm, mean pooling, `DataLoader`, Adam and PyTorch's losses.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GENConv, GINEConv, global_add_pool, global_mean_pool

from tasks.storage.graph_store import GraphStore

VERSION = torch_geometric.__version__


class Graphs(list[Data]):
    """Graphs of the training split, and what the models have to know of them."""

    atoms: tuple[int, ...]
    bonds: tuple[int, ...]
    tasks: int


def read_graphs(folder: Path) -> Graphs:
    """Read them from what graphmill prepared: the same edges, codes and labels."""
    store = GraphStore.open(folder)
    names = ("graph_offsets", "csc_indptr", "csc_indices", "feat_cat", "edge_feat_cat", "graph_label")
    offsets, indptr, indices, atoms, bonds, labels = (np.asarray(store[name]) for name in names)
    found = Graphs()
    for graph in np.asarray(store["train_idx"]):
        first, last = offsets[graph], offsets[graph + 1]
        low, high = indptr[first], indptr[last]
        destinations = np.repeat(np.arange(last - first), np.diff(indptr[first : last + 1]))
        edge_index = np.stack([indices[low:high] - first, destinations]).astype(np.int64)
        found.append(
            Data(
                x=torch.from_numpy(atoms[first:last].astype(np.int64)),
                edge_index=torch.from_numpy(edge_index),
                edge_attr=torch.from_numpy(bonds[low:high].astype(np.int64)),
                y=torch.from_numpy(labels[graph].astype(np.float32)).view(1, -1),
            )
        )
    manifest = store.manifest
    found.atoms, found.bonds = tuple(manifest.categories), tuple(manifest.edge_categories)
    found.tasks = found[0].y.shape[1]
    return found


class Embeddings(nn.Module):
    """A table for each column of codes (n, C), summed."""

    def __init__(self, sizes: tuple[int, ...], dim: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, dim) for size in sizes)

    def forward(self, codes: Tensor) -> Tensor:
        result = self.tables[0](codes[:, 0])
        for column in range(1, codes.shape[1]):
            result = result + self.tables[column](codes[:, column])
        return result


def wide_mlp(dim: int, out: int, *last: nn.Module) -> nn.Sequential:
    """Linear, batch norm, ReLU at twice the width, and a linear map back."""
    return nn.Sequential(nn.Linear(dim, 2 * dim), nn.BatchNorm1d(2 * dim), nn.ReLU(), nn.Linear(2 * dim, out), *last)


class Gin(nn.Module):
    """GIN with bonds, and virtual nodes if asked for."""

    def __init__(self, graphs: Graphs, *, virtual: bool, dim: int = 300, layers: int = 5, dropout: float = 0.5) -> None:
        super().__init__()
        self.atoms, self.dropout = Embeddings(graphs.atoms, dim), dropout
        self.bonds = nn.ModuleList(Embeddings(graphs.bonds, dim) for _ in range(layers))
        self.convs = nn.ModuleList(GINEConv(wide_mlp(dim, dim), train_eps=True) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(dim) for _ in range(layers))
        self.start = nn.Parameter(torch.zeros(1, dim)) if virtual else None
        self.virtual = nn.ModuleList(
            wide_mlp(dim, dim, nn.BatchNorm1d(dim), nn.ReLU()) for _ in range(layers - 1 if virtual else 0)
        )
        self.head = nn.Linear(dim, graphs.tasks)

    def forward(self, data: Any) -> Tensor:
        x, state = self.atoms(data.x), None
        if self.start is not None:
            state = self.start.expand(data.num_graphs, -1)
        for number, (conv, norm, bonds) in enumerate(zip(self.convs, self.norms, self.bonds, strict=True)):
            if state is not None:
                x = x + state[data.batch]
            y = norm(conv(x, data.edge_index, bonds(data.edge_attr)))
            if number < len(self.convs) - 1:
                y = F.relu(y)
            y = F.dropout(y, self.dropout, self.training)
            if number < len(self.virtual):
                pooled = global_add_pool(x, data.batch, data.num_graphs) + state
                state = F.dropout(self.virtual[number](pooled), self.dropout, self.training)
            x = y
        return self.head(global_mean_pool(x, data.batch, data.num_graphs))


class DeeperGcn(nn.Module):
    """res+ blocks of softmax aggregation with a learnt temperature."""

    def __init__(self, graphs: Graphs, *, dim: int = 256, layers: int = 7, dropout: float = 0.2) -> None:
        super().__init__()
        self.atoms, self.dropout = Embeddings(graphs.atoms, dim), dropout
        self.bonds = nn.ModuleList(Embeddings(graphs.bonds, dim) for _ in range(layers))
        options = {"aggr": "softmax", "t": 1.0, "learn_t": True, "num_layers": 1, "norm": "batch", "bias": True}
        self.convs = nn.ModuleList(GENConv(dim, dim, **options) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(dim) for _ in range(layers))
        self.head = nn.Linear(dim, graphs.tasks)

    def forward(self, data: Any) -> Tensor:
        x = self.atoms(data.x)
        x = self.convs[0](x, data.edge_index, self.bonds[0](data.edge_attr))
        for number in range(1, len(self.convs)):
            y = F.dropout(F.relu(self.norms[number - 1](x)), self.dropout, self.training)
            x = x + self.convs[number](y, data.edge_index, self.bonds[number](data.edge_attr))
        x = F.dropout(self.norms[-1](x), self.dropout, self.training)
        return self.head(global_mean_pool(x, data.batch, data.num_graphs))


def make_model(graphs: Graphs, name: str) -> nn.Module:
    """Return a model of `graphs_sides.MODELS`."""
    return DeeperGcn(graphs) if name == "DeeperGCN" else Gin(graphs, virtual=name == "GIN-virtual")


class Loop:
    """A training that goes on for ever, some steps at a time."""

    def __init__(
        self, graphs: Graphs, name: str, *, batch: int, learning_rate: float, autocast: bool, seed: int = 0
    ) -> None:
        """`autocast`: to bfloat16."""
        torch.manual_seed(seed)
        self.model = make_model(graphs, name)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=learning_rate)
        self.loader = DataLoader(graphs, batch_size=batch, shuffle=True, drop_last=True)
        self.batches, self.autocast, self.loss = self._endless(), autocast, 0.0

    def _endless(self) -> Any:
        while True:
            yield from self.loader

    def take(self, steps: int) -> float:
        """Take steps; return how many."""
        self.model.train()
        for _ in range(steps):
            data = next(self.batches)
            with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
                scores = self.model(data)
            known = data.y == data.y
            self.optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(scores.float()[known], data.y[known])
            loss.backward()
            self.optimizer.step()
            self.loss = loss.item()
        return steps
