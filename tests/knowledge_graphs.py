"""Small knowledge graphs as artifacts of the partition stage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.arrays import Array
from tasks.stage import Parent
from tasks.storage.graph_store import ArrayWriter
from tests.support import finish, write_csc, written

Triples = NDArray[np.int64]
"""(n, 3): heads, relations, tails."""


def planted_triples(num_entities: int = 120, seed: int = 0) -> tuple[Triples, int]:
    """Triples whose relations are steps on a ring of entities, two of them each other's way back; and how many."""
    rng = np.random.default_rng(seed)
    steps = np.array([1, -1, 5, 17, num_entities // 2])
    heads = np.repeat(np.arange(num_entities), len(steps))
    relations = np.tile(np.arange(len(steps)), num_entities)
    tails = (heads + steps[relations]) % num_entities
    triples = np.stack([heads, relations, tails], 1)
    return triples[rng.permutation(len(triples))], len(steps)


def triple_graph(
    folder: Path,
    splits: dict[str, Triples] | None = None,
    num_entities: int = 120,
    *,
    feat: Array | None = None,
    relation_feat: Array | None = None,
) -> Parent:
    folder.mkdir(parents=True, exist_ok=True)
    num_relations = 0
    if splits is None:
        triples, num_relations = planted_triples(num_entities)
        tenth = len(triples) // 10
        cuts = np.split(triples, [tenth, 2 * tenth])
        splits = dict(zip(("valid", "test", "train"), cuts, strict=True))
    num_relations = max(num_relations, 1 + max(int(part[:, 1].max()) for part in splits.values()))
    writer = ArrayWriter(folder)
    heads, _, tails = splits["train"].T
    both: Array = np.unique(np.stack([np.concatenate([heads, tails]), np.concatenate([tails, heads])]), axis=1)
    num_edges = write_csc(writer, num_entities, both[0].astype(np.int32), both[1].astype(np.int32))
    for split, part in splits.items():
        writer.write(f"{split}_edges", np.ascontiguousarray(part[:, [0, 2]]).astype(np.int32))
        writer.write(f"{split}_relation", part[:, 1].astype(np.int32))
    writer.write("node_ids", np.arange(num_entities, dtype=np.int64))
    for name, features in (("feat", feat), ("relation_feat", relation_feat)):
        if features is not None:
            writer.write(name, features.astype(np.float32))
    parent = finish(
        folder,
        writer,
        num_nodes=num_entities,
        num_edges=num_edges,
        task="triple",
        task_type="triple",
        metric="mrr",
        num_relations=num_relations,
        feature_dim=0 if feat is None else feat.shape[1],
        relation_feature_dim=0 if relation_feat is None else relation_feat.shape[1],
        splits={split: len(part) for split, part in splits.items()},
    )
    return written(parent)
