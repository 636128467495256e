"""Walks by relation, rows and weights that GATNE-T learns of them, and the vectors that it makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from configs.errors import DataError
from configs.families.row_training import MultiplexTrainConfig
from models.kernels.skipgram.train_pairs import pair_loss, train_pairs
from models.kernels.tables.row_tables import RowTable
from models.vectors.configs import GatneConfig
from models.vectors.gatne import RelationMixing
from tasks.arrays import Array, row_blocks
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.walks.random_walks import Walks, expected_pairs, out_weights, walk_pairs
from tasks.storage.graph_store import GraphStore
from tasks.train.embeddings.host_tables import SparseAdam

_BASE, _LENT, _SHARED = 1, 2, 3
"""Purposes that keys are drawn for; the trainer has the others."""
_EDGES_AT_ONCE = 1 << 20


class RelationVectors:
    """The parameters. Rows of nodes lie in tables and learn by sparse Adam, what all nodes share by Adam.

    A batch's vectors are computed once. From pair to pair they and the rows of contexts take skip-gram's steps (the
    kernel of DeepWalk and LINE); what a vector has moved by then, over the rate, is its gradient, and goes back into
    what it is made of. Where no row is met twice in a batch that is the gradient of the loss; else each pair's is taken
    where the pairs before it have left the rows.
    """

    def __init__(
        self, config: GatneConfig, graphs: list[RelationGraph], num_nodes: int, rate: float, seed: int
    ) -> None:
        """Draw the first rows; contexts begin at 0. `rate`: Adam's."""
        self.config, self.graphs, self.num_nodes, self.rate = config, graphs, num_nodes, rate
        self.num_relations = len(graphs)
        self.base = _drawn(num_nodes, config.dim, derive_key(seed, _BASE))
        """float32 (N, d)."""
        self.lent = _drawn(num_nodes * self.num_relations, config.edge_dim, derive_key(seed, _LENT))
        """float32 (N * R, s): what node i lends in relation q is row i * R + q."""
        self.contexts = RowTable.zeros(num_nodes, config.dim)
        sizes = self.num_relations, config.dim, config.edge_dim, config.attention_dim
        self.mixing = RelationMixing(*sizes, seed=derive_key(seed, _SHARED))
        self.optimizer = torch.optim.Adam(self.mixing.parameters(), lr=rate)
        self.of_base, self.of_lent = SparseAdam(self.base, torch.zeros), SparseAdam(self.lent, torch.zeros)
        self.steps = 0

    @property
    def num_parameters(self) -> int:
        """Numbers that are learnt."""
        shared = sum(parameter.numel() for parameter in self.mixing.parameters())
        return self.base.numel() + self.lent.numel() + self.num_nodes * self.config.dim + shared

    def learn(
        self,
        centres: Array,
        relations: Array,
        contexts: Array,
        negatives: Array,
        random: np.random.Generator,
        pair_rate: float,
    ) -> float:
        """Take a step for a batch of pairs; return their mean loss before it, by a few of them.

        `centres`, `relations` and `contexts` are (n,), `negatives` nodes (n, K); `random` draws neighbours, and
        `pair_rate` is that of the steps from pair to pair.
        """
        keys, place = np.unique(relations.astype(np.int64) * self.num_nodes + centres, return_inverse=True)
        nodes = keys % self.num_nodes
        bounds = np.searchsorted(keys, np.arange(self.num_relations + 1) * self.num_nodes).tolist()
        neighbors = drawn_neighbors(self.graphs, nodes, self.config.neighbors, random)
        lending, lent_place = np.unique(
            neighbors * self.num_relations + np.arange(self.num_relations)[:, None], return_inverse=True
        )
        own, own_place = np.unique(nodes, return_inverse=True)
        base_ids, lent_ids = torch.from_numpy(own), torch.from_numpy(lending)
        base, lent = self.base[base_ids].requires_grad_(), self.lent[lent_ids].requires_grad_()
        # The mean of rows by their number in the batch, without a copy of each row for each neighbour.
        flat = torch.from_numpy(lent_place.reshape(-1, self.config.neighbors))
        near = torch.nn.functional.embedding_bag(flat, lent, mode="mean").view(len(nodes), self.num_relations, -1)
        vectors = self.mixing(base[torch.from_numpy(own_place)], near, bounds)

        rows, before = place.astype(contexts.dtype), vectors.detach().numpy()
        loss, slopes = pair_slopes(before, self.contexts, rows, contexts, negatives, pair_rate)
        self.optimizer.zero_grad()
        vectors.backward(torch.from_numpy(slopes))
        self.optimizer.step()
        self.steps += 1
        assert base.grad is not None
        assert lent.grad is not None
        self.of_base.step(base_ids, base.grad, self.rate, self.steps)
        self.of_lent.step(lent_ids, lent.grad, self.rate, self.steps)
        return loss

    @torch.no_grad()
    def vectors(self) -> Tensor:
        """Return the vectors of all nodes, by all their neighbours, relations side by side: float32 (N, R * d)."""
        count = self.num_relations
        out = torch.empty(self.num_nodes, count, self.config.dim)
        total = sum(graph.indptr for graph in self.graphs) + np.arange(self.num_nodes + 1)
        for start, stop in row_blocks(total, _EDGES_AT_ONCE):
            near = torch.stack([self._mean_lent(number, start, stop) for number in range(count)], 1)
            rows = stop - start
            bounds = [rows * number for number in range(count + 1)]
            made = self.mixing(self.base[start:stop].repeat(count, 1), near.repeat(count, 1, 1), bounds)
            out[start:stop] = made.view(count, rows, -1).transpose(0, 1)
        return out.view(self.num_nodes, -1)

    def _mean_lent(self, number: int, start: int, stop: int) -> Tensor:
        """Return the mean of what some nodes' neighbours lend in a relation, (n, s)."""
        graph = self.graphs[number]
        first = graph.indptr[start : stop + 1]
        neighbors = graph.indices[first[0] : first[-1]].astype(np.int64)
        rows = torch.from_numpy(neighbors * self.num_relations + number)
        means = torch.nn.functional.embedding_bag(
            rows, self.lent, torch.from_numpy(first - first[0]), mode="mean", include_last_offset=True
        )
        alone = torch.from_numpy(np.diff(first) == 0)
        means[alone] = self.lent[number :: self.num_relations][start:stop][alone]
        return means

    def state(self) -> dict[str, Any]:
        """Return all that a training goes on from."""
        return {
            "base": self.base,
            "lent": self.lent,
            "contexts": torch.from_numpy(self.contexts.read()),
            "of_base": self.of_base.tensors(),
            "of_lent": self.of_lent.tensors(),
            "mixing": self.mixing.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "steps": self.steps,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` returned."""
        pairs = [(self.base, state["base"]), (self.lent, state["lent"])]
        for optimizer, name in ((self.of_base, "of_base"), (self.of_lent, "of_lent")):
            pairs += [(tensor, state[name][key]) for key, tensor in optimizer.tensors().items()]
        for tensor, saved in pairs:
            tensor.copy_(saved)
        self.contexts.write(slice(None), state["contexts"].numpy())
        self.mixing.load_state_dict(state["mixing"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.steps = int(state["steps"])


def _drawn(rows: int, width: int, seed: int) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)) / width**0.5


_LOSS_PAIRS = 1 << 12


def pair_slopes(
    vectors: Array, contexts: RowTable, centres: Array, others: Array, negatives: Array, rate: float
) -> tuple[float, Array]:
    """Take skip-gram's steps for pairs; return the first ones' mean loss before, and how vectors moved, over the rate.

    That is their gradient, float32 (n, d). `contexts` move for good. The loss is the sum over pairs of -log s(v.c) -
    sum_k log s(-v.c_k).
    """
    table = RowTable.zeros(*vectors.shape)
    table.write(slice(None), vectors)
    loss = pair_loss(table, contexts, centres[:_LOSS_PAIRS], others[:_LOSS_PAIRS], negatives[:_LOSS_PAIRS])
    train_pairs(table, contexts, centres, others, negatives, rate=rate)
    return loss, (vectors - table.read()) / np.float32(rate)


_WALKS, _WINDOWS = 11, 12
"""Purposes that keys are drawn for."""


@dataclass(frozen=True)
class RelationGraph:
    """Out-edges of a relation, over all nodes."""

    indptr: Array
    """int64 (N + 1,)."""
    indices: Array
    """id (E_r,), ascending within a node."""
    weight: Array | None
    """float32 (E_r,); None: all alike."""


def relation_graphs(store: GraphStore) -> list[RelationGraph]:
    """Return the graph of each relation that links are predicted in; 8 to 16 bytes an edge, and 8 a node for each."""
    indptr, indices = np.asarray(store["csr_indptr"]), np.asarray(store["csr_indices"])
    symmetric = store.manifest.symmetric  # what leads to a node is then what leads from it, in each relation
    weight = out_weights(store, symmetric=symmetric)
    kinds = store.get("edge_type")
    if kinds is None:
        return [RelationGraph(indptr, indices, weight)]
    kinds = np.asarray(kinds) if symmetric else np.asarray(kinds)[np.asarray(store["csr_eids"])]
    graphs = []
    for relation in range(store.manifest.num_relations):
        of_relation = kinds == relation
        before = np.append(0, np.cumsum(of_relation))
        graphs.append(
            RelationGraph(before[indptr], indices[of_relation], None if weight is None else weight[of_relation])
        )
    return graphs


def drawn_neighbors(graphs: list[RelationGraph], nodes: Array, count: int, random: np.random.Generator) -> Array:
    """Return `count` out-neighbours of nodes in each relation, with replacement: int64 (n, R, count).

    A node without any has itself in their place.
    """
    neighbors = np.empty((len(nodes), len(graphs), count), np.int64)
    for number, graph in enumerate(graphs):
        first = graph.indptr[nodes]
        degree = graph.indptr[nodes + 1] - first
        place = (random.random((len(nodes), count), dtype=np.float32) * degree[:, None]).astype(np.int64)
        # A share just below 1 may round to the degree.
        place = first[:, None] + np.minimum(place, np.maximum(degree - 1, 0)[:, None])
        has_some = degree > 0
        neighbors[:, number] = nodes[:, None]
        neighbors[has_some, number] = graph.indices[place[has_some]]
    return neighbors


class RelationWalks:
    """Pairs of all relations: walks of each, as many as its nodes ask for. A batch depends on its number alone."""

    def __init__(self, graphs: list[RelationGraph], names: list[str], train: MultiplexTrainConfig, seed: int) -> None:
        """Prepare the walks. Raises DataError: a relation without edges."""
        self.loader, self.seed = cast(Any, train.loader), seed
        options = self.loader
        self.walks: list[Walks] = []
        for number, graph in enumerate(graphs):
            if not len(graph.indices):
                raise DataError(f"relation {names[number]} has no edge to walk along: leave it out")
            weight = graph.weight if options.edge_weights else None
            self.walks.append(
                Walks(
                    graph.indptr,
                    graph.indices,
                    key=derive_key(seed, _WALKS, number),
                    length=options.length,
                    by_degree=options.start == "degree",
                    weight=weight,
                    p=options.p,
                    q=options.q,
                )
            )
        starts = np.array([len(walks.starts) for walks in self.walks])
        each = expected_pairs(options.length, options.window, options.forward, options.shrink)
        expected = train.batch_size / each * starts / starts.sum()
        self.counts = np.clip(np.rint(expected), 1, train.walks * starts).astype(np.int64)
        """Walks of a batch, by relation."""
        self.batches_an_epoch = int(np.ceil(train.walks * starts / self.counts).max())
        """Batches of an epoch."""

    def pairs(self, number: int) -> tuple[Array, Array, Array]:
        """Return a batch's centres, relations and contexts, (n,) each."""
        options, parts = self.loader, []
        for relation, (walks, count) in enumerate(zip(self.walks, self.counts.tolist(), strict=True)):
            tokens = np.empty((count, options.length), walks.indices.dtype)
            first = number * count
            walks.fill(first, tokens)
            key = derive_key(self.seed, _WINDOWS, relation)
            near = {"forward": options.forward, "shrink": options.shrink}
            centres, contexts = walk_pairs(tokens, options.window, **near, key=key, first=first)
            parts.append((centres, np.full(len(centres), relation, np.int32), contexts))
        centres, relations, contexts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return centres, relations, contexts
