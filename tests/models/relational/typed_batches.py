"""Random batches of a typed graph, made by hand: odd sizes, relations without edges, types without rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from configs.registry import MODELS
from models.facts import GraphFacts
from models.relational.base import RelationalModel, message_relations
from models.relational.batch import RelationBlock, TypedBatch, TypedBlock, TypedInputs, TypeInputs

TYPES = ("customer", "order", "product", "review", "task")
FACTS = GraphFacts(
    task="node",
    out_dim=1,
    num_nodes=1000,
    feature_dim=7,
    categories=(4, 3, 6),
    edge_feature_dim=3,
    edge_categories=(5,),
    num_node_types=len(TYPES),
    num_edge_types=9,
    symmetric=False,
    # Orders of customers, order - product with columns of its own, both ways; reviews have no relation but these.
    relation_ends=((1, 0), (0, 1), (1, 2), (2, 1), (3, 0), (3, 2), (2, 2), (4, 0), (0, 4)),
    relation_names=("orders", "of", "has", "in", "by", "about", "like", "task", "entity"),
    node_columns=((0, 1), (2, 3, 4), (), (5, 6), ()),
    node_codes=((0,), (), (1, 2), (), ()),
    edge_columns=((), (), (0, 1, 2), (0, 1, 2), (), (), (), (), ()),
    edge_codes=((), (), (0,), (0,), (), (), (), (), ()),
    label_type=4,
    seed_type=0,
    has_times=True,
)


def make(name: str, seed: int = 0, facts: Any = FACTS, **options: Any) -> RelationalModel:
    """A model whose biases, scales and priors are not those of its first breath."""
    torch.manual_seed(seed)
    config = MODELS.config({"name": name, "hidden_dim": 12, "dropout": 0.0, **options})
    model: RelationalModel = MODELS.create(config, facts)
    for parameter in model.parameters():
        if parameter.dim() < 2:
            parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def random_batch(facts: GraphFacts = FACTS, num_layers: int = 2, seed: int = 0, **others: Any) -> TypedBatch:
    """A batch of five customers; relation 6 has no edges, and at hop 0 no reviews are reached."""
    rng = np.random.default_rng(seed)
    counts = [5 if t == facts.seed_type else 0 for t in range(facts.num_node_types)]
    blocks: list[TypedBlock] = []
    for hop in range(num_layers):
        num_dst, grown = tuple(counts), list(counts)
        drawn: dict[int, tuple[np.ndarray, int]] = {}
        for number in message_relations(facts):
            source, target = facts.relation_ends[number]
            silent = number == 6 or (source == 3 and hop == 0)
            degrees = rng.integers(0, 1 if silent else 5, num_dst[target])
            degrees[: len(degrees) // 3] = 0
            drawn[number] = degrees, int(degrees.sum())
            grown[source] += -(-drawn[number][1] // 2)
        # What walks visit is drawn by itself, so that other models' batches are as they were.
        walked = np.random.default_rng([seed, hop])
        degrees = walked.integers(0, 4, num_dst[facts.seed_type])
        relations = [_visits(facts.seed_type, degrees, grown, walked)]
        for number, (degrees, total) in drawn.items():
            source, target = facts.relation_ends[number]
            relations.append(
                _relation(facts, number, degrees, rng.integers(0, max(1, grown[source]), total), grown, rng)
            )
        blocks.insert(0, TypedBlock(relations, tuple(grown), num_dst))
        counts = grown
    inputs = TypedInputs([_rows(facts, t, n, rng) for t, n in enumerate(counts)])
    rows = torch.tensor([4, 0, 2, 2])
    batch = TypedBatch(blocks, inputs, torch.ones(4, facts.out_dim), 4, facts.seed_type, rows=rows)
    batch.num_edges = sum(block.num_edges for block in blocks)
    for name, value in others.items():
        setattr(batch, name, value)
    return batch


def _visits(kind: int, degrees: Any, sizes: list[int], rng: Any) -> RelationBlock:
    """What walks from rows of a type visit: their weights add up to 1."""
    indptr, total = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64), int(degrees.sum())
    indices = rng.integers(0, max(1, sizes[kind]), total).astype(np.int32)
    weights = rng.random(total) + 0.1
    weights /= np.repeat(np.add.reduceat(np.append(weights, 0), indptr[:-1]), degrees)
    made = RelationBlock(-1 - kind, kind, kind, torch.from_numpy(indptr), torch.from_numpy(indices), sizes[kind])
    made.weight = torch.from_numpy(weights.astype(np.float32))
    return made


def _relation(facts: GraphFacts, number: int, degrees: Any, sources: Any, sizes: list[int], rng: Any) -> RelationBlock:
    source, target = facts.relation_ends[number]
    indptr = torch.from_numpy(np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64))
    indices = torch.from_numpy(sources.astype(np.int32))
    width, codes = len(facts.edge_columns[number]), facts.edge_codes[number]
    feat = torch.from_numpy(rng.standard_normal((len(sources), width)).astype(np.float32)) if width else None
    limits = [facts.edge_categories[c] for c in codes]
    cat = torch.from_numpy(rng.integers(0, limits, (len(sources), len(codes)))) if codes else None
    ages = torch.from_numpy(rng.gamma(1.0, 50.0, len(sources)).astype(np.float32))
    return RelationBlock(number, source, target, indptr, indices, sizes[source], feat, cat, ages)


def _rows(facts: GraphFacts, kind: int, count: int, rng: Any) -> TypeInputs:
    width, codes = len(facts.node_columns[kind]), facts.node_codes[kind]
    feat = torch.from_numpy(rng.standard_normal((count, width)).astype(np.float32)) if width else None
    limits = [facts.categories[c] for c in codes]
    cat = torch.from_numpy(rng.integers(0, limits, (count, len(codes)))) if codes else None
    age = torch.from_numpy(rng.gamma(1.0, 50.0, count).astype(np.float32))
    age[::3] = torch.nan
    return TypeInputs(torch.from_numpy(rng.integers(0, facts.num_nodes, count)), feat, cat, age)
