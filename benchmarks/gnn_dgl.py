"""DGL's side: a script as DGL's own examples write it, and its fused operators."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from benchmarks.gnn_worker import Arrays, Contender, Operator, Settings, shuffled
from models.dgl.adapter import load_dgl

dgl = load_dgl()


class Sage(nn.Module):
    """`dglnn.SAGEConv(mean)`, ReLU, dropout; as examples/pytorch/graphsage does it."""

    def __init__(self, in_dim: int, hidden_dim: int, out_dim: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        widths = [in_dim, *[hidden_dim] * (num_layers - 1), out_dim]
        self.layers = nn.ModuleList(dgl.nn.SAGEConv(widths[i], widths[i + 1], "mean") for i in range(num_layers))
        self.dropout = nn.Dropout(dropout)

    def forward(self, blocks: list[Any], x: Tensor) -> Tensor:
        for number, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            x = layer(block, x)
            if number < len(self.layers) - 1:
                x = self.dropout(F.relu(x))
        return x


class MiniBatch(Contender):
    """DataLoader + NeighborSampler + SAGEConv + Adam; ids are int64 (DGL 2.1 makes corrupt blocks of int32 ones).

    Option `autocast`: the model runs under bfloat16 autocast.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.threads_used()
        arrays = Arrays(settings.graph)
        torch.manual_seed(settings.seed)
        # Made from the CSC that sampling needs: a script that starts from pairs of ids holds those as well.
        indptr, indices = (torch.from_numpy(arrays[f"csc_{name}"]).long() for name in ("indptr", "indices"))
        self.graph = dgl.graph(("csc", (indptr, indices, [])), num_nodes=arrays.num_nodes)
        self.feat = torch.from_numpy(arrays["feat"]).float()
        self.label = torch.from_numpy(arrays["label"])
        train = arrays["train_idx"].astype("int64")
        self.sampler = dgl.dataloading.NeighborSampler(list(reversed(settings.fanout)))
        self.loader = dgl.dataloading.DataLoader(
            self.graph,
            torch.from_numpy(train),
            self.sampler,
            batch_size=settings.batch_size,
            shuffle=True,
            num_workers=0,
        )
        self.autocast = bool(settings.options.get("autocast"))
        self.model = Sage(
            self.feat.shape[1],
            settings.hidden_dim,
            arrays.manifest["num_classes"],
            len(settings.fanout),
            settings.dropout,
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=settings.learning_rate)
        self.seeds = shuffled(train, settings.batch_size, settings.seed)
        self.batches = self._endless()
        self.test = torch.from_numpy(arrays["test_idx"]).long()
        self.jobs = {"sample": self._sample, "gather": self._gather, "train": self._train}

    def versions(self) -> dict[str, str]:
        return {"dgl": dgl.__version__, "torch": torch.__version__}

    def threads_used(self) -> None:
        super().threads_used()
        dgl.utils.set_num_threads(self.settings.threads)

    def _endless(self) -> Any:
        while True:
            yield from self.loader

    def _draw(self) -> Any:
        return self.sampler.sample(self.graph, torch.from_numpy(next(self.seeds)))

    def _sample(self, units: int) -> None:
        for _ in range(units):
            self._draw()

    def _gather(self, units: int) -> None:
        for _ in range(units):
            inputs, seeds, _ = self._draw()
            _ = self.feat[inputs], self.label[seeds]

    def _step(self, batch: Any) -> None:
        inputs, seeds, blocks = batch
        x, target = self.feat[inputs], self.label[seeds]
        with torch.autocast("cpu", torch.bfloat16) if self.autocast else contextlib.nullcontext():
            scores = self.model(blocks, x)
        loss = F.cross_entropy(scores.float(), target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        loss.item()

    def _train(self, units: int) -> None:
        self.model.train()
        for _ in range(units):
            self._step(next(self.batches))

    def fit(self, epochs: int) -> dict[str, float]:
        """Train so many epochs; test accuracy by full neighbourhoods, layer by layer."""
        self.model.train()
        for _ in range(epochs):
            for batch in self.loader:
                self._step(batch)
        self.model.eval()
        with torch.no_grad():
            scores = self.model([self.graph] * len(self.model.layers), self.feat)
        right = scores[self.test].argmax(1) == self.label[self.test]
        return {"accuracy": float(right.float().mean())}


def whole_graph(arrays: Arrays, device: str) -> Any:
    """The graph from pairs of ids: on graphs made from CSR only, GAT's operators fail in DGL 2.1."""
    source, destination = arrays.coo()
    made = dgl.graph((torch.from_numpy(source), torch.from_numpy(destination)), num_nodes=arrays.num_nodes)
    made.create_formats_()
    return made.to(device)


class WholeGraph(Operator):
    """An operator of DGL's."""

    def prepare(self, arrays: Arrays) -> None:
        dgl.utils.set_num_threads(self.settings.threads)
        self.graph = whole_graph(arrays, self.settings.device)

    def versions(self) -> dict[str, str]:
        return {"dgl": dgl.__version__}


class Aggregation(WholeGraph):
    """GCN's aggregation on the whole graph: update_all(copy_u, sum)."""

    def forward(self) -> Tensor:
        with self.graph.local_scope():
            self.graph.ndata["x"] = self.x
            self.graph.update_all(dgl.function.copy_u("x", "m"), dgl.function.sum("m", "y"))
            return self.graph.ndata["y"]


class Attention(WholeGraph):
    """The operators inside of GATConv: u_add_v, leaky ReLU, edge softmax, u_mul_e sum."""

    job, score_shape = "attend", (1,)

    def forward(self) -> Tensor:
        scores = F.leaky_relu(dgl.ops.u_add_v(self.graph, self.source, self.target), 0.2)
        return dgl.ops.u_mul_e_sum(self.graph, self.x, dgl.ops.edge_softmax(self.graph, scores))


class FullGat(Contender):
    """Full-graph GAT: three GATConv layers, ELU, dropout on features; a step is an epoch."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.threads_used()
        dgl.utils.set_num_threads(settings.threads)
        arrays = Arrays(settings.graph)
        # GATConv refuses nodes without in-edges unless told not to; ours gives them zeros as well.
        self.graph = whole_graph(arrays, settings.device)
        torch.manual_seed(settings.seed)
        self.feat = torch.from_numpy(arrays["feat"]).float().to(settings.device)
        self.train_rows = torch.from_numpy(arrays["train_idx"]).long().to(settings.device)
        self.target = torch.from_numpy(arrays["label"]).to(settings.device)[self.train_rows]
        heads, width = settings.heads, settings.hidden_dim // settings.heads
        self.layers = nn.ModuleList()
        in_dim = self.feat.shape[1]
        for _ in settings.fanout:
            self.layers.append(dgl.nn.GATConv(in_dim, width, heads, allow_zero_in_degree=True))
            in_dim = settings.hidden_dim
        self.head = nn.Linear(in_dim, arrays.manifest["num_classes"])
        self.layers.to(settings.device)
        self.head.to(settings.device)
        parameters = [*self.layers.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.Adam(parameters, lr=settings.learning_rate)
        self.jobs = {"epoch": self._run}

    def _run(self, units: int) -> None:
        for _ in range(units):
            x = self.feat
            for layer in self.layers:
                x = F.dropout(F.elu(layer(self.graph, x).flatten(1)), self.settings.dropout)
            loss = F.cross_entropy(self.head(x)[self.train_rows], self.target)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            loss.item()
