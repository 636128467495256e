"""PyG's side: NeighborLoader + SAGEConv as in its examples, with and without `trim_to_layer`.

NeighborLoader samples with pyg-lib where that is installed, else with torch-sparse, which does not say how many nodes
and edges a hop brought: `count_hops` finds them, in a small part of a step's time.
"""

from __future__ import annotations

import torch
import torch_geometric
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv
from torch_geometric.sampler import NodeSamplerInput
from torch_geometric.utils import trim_to_layer

from benchmarks.gnn_worker import Arrays, Contender, Settings, shuffled


class Sage(nn.Module):
    """`SAGEConv`, ReLU, dropout."""

    def __init__(self, in_dim: int, hidden_dim: int, out_dim: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        widths = [in_dim, *[hidden_dim] * (num_layers - 1), out_dim]
        self.convs = nn.ModuleList(SAGEConv(widths[i], widths[i + 1]) for i in range(num_layers))
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor, hops: tuple[list[int], list[int]] | None = None) -> Tensor:
        for number, conv in enumerate(self.convs):
            if hops is not None:
                x, edge_index, _ = trim_to_layer(number, hops[0], hops[1], x, edge_index)
            x = conv(x, edge_index)
            if number < len(self.convs) - 1:
                x = F.dropout(F.relu(x), self.dropout, self.training)
        return x


def count_hops(edge_index: Tensor, num_seeds: int, num_hops: int) -> tuple[list[int], list[int]]:
    """Return nodes and edges that each hop brought, as pyg-lib reports them.

    Nodes are numbered in the order in which they were found, and edges come hop by hop: a hop's destinations are the
    nodes that the hop before found.
    """
    nodes, edges, known, first = [num_seeds], [], num_seeds, 0
    for _ in range(num_hops):
        rest = edge_index[1, first:]
        count = int(torch.searchsorted(rest, known))
        found = max(known, int(edge_index[0, first : first + count].max()) + 1) if count else known
        nodes.append(found - known)
        edges.append(count)
        known, first = found, first + count
    return nodes, edges


class MiniBatch(Contender):
    """NeighborLoader + SAGEConv + Adam; jobs `train` (stock) and `train_trimmed`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.threads_used()
        arrays = Arrays(settings.graph)
        torch.manual_seed(settings.seed)
        source, destination = arrays.coo()
        edge_index = torch.stack([torch.from_numpy(source), torch.from_numpy(destination)])
        del source, destination
        self.data = Data(torch.from_numpy(arrays["feat"]).float(), edge_index, y=torch.from_numpy(arrays["label"]))
        del edge_index
        train = arrays["train_idx"].astype("int64")
        self.loader = NeighborLoader(
            self.data,
            num_neighbors=list(settings.fanout),
            input_nodes=torch.from_numpy(train),
            batch_size=settings.batch_size,
            shuffle=True,
            num_workers=0,
        )
        self.model = Sage(
            self.data.num_features,
            settings.hidden_dim,
            arrays.manifest["num_classes"],
            len(settings.fanout),
            settings.dropout,
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=settings.learning_rate)
        self.seeds = shuffled(train, settings.batch_size, settings.seed)
        self.positions = shuffled(torch.arange(len(train)).numpy(), settings.batch_size, settings.seed)
        self.batches = self._endless()
        self.jobs = {
            "sample": self._sample,
            "gather": self._gather,
            "train": lambda units: self._train(units, trimmed=False),
            "train_trimmed": lambda units: self._train(units, trimmed=True),
        }

    def versions(self) -> dict[str, str]:
        sampler = "pyg-lib" if torch_geometric.typing.WITH_PYG_LIB else "torch-sparse"
        return {"torch_geometric": torch_geometric.__version__, "torch_geometric samples with": sampler}

    def _endless(self):
        while True:
            yield from self.loader

    def _sample(self, units: int) -> None:
        for _ in range(units):
            self.loader.node_sampler.sample_from_nodes(NodeSamplerInput(None, torch.from_numpy(next(self.seeds))))

    def _gather(self, units: int) -> None:
        for _ in range(units):
            self.loader(torch.from_numpy(next(self.positions)))

    def _train(self, units: int, *, trimmed: bool) -> None:
        self.model.train()
        for _ in range(units):
            batch = next(self.batches)
            hops = None
            if trimmed:
                hops = (batch.get("num_sampled_nodes"), batch.get("num_sampled_edges"))
                if hops[0] is None:
                    hops = count_hops(batch.edge_index, batch.batch_size, len(self.settings.fanout))
            scores = self.model(batch.x, batch.edge_index, hops)[: batch.batch_size]
            loss = F.cross_entropy(scores, batch.y[: batch.batch_size])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            loss.item()
