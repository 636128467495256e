"""How much memory a machine takes for a graph in parts, and how large a graph the given machines would hold."""

from __future__ import annotations

from typing import NamedTuple

from configs.training import TrainConfig
from models.facts import GraphFacts
from tasks.sizes import Counts
from tasks.train.gradients.weights import Weights
from tasks.train.strategies.configs import PartitionedConfig

_NUMBERING_BYTES = 8
"""A node of the whole graph and rank: local numbers, and once as many where validation finds what borders on a part."""
_OFFSET_BYTES = 8 + 4
"""A node of a machine and rank: where its in-edges begin, and their number as a float."""
_NUMBER_BYTES = {"stored": 4, "float16": 2, "bfloat16": 2, "int8": 1}
_CACHE_SHARE = 1 / 8


class PartBytes(NamedTuple):
    """Memory of one machine's ranks, in bytes, beside what any training takes; mapped files apart."""

    fixed: float
    scaled: float
    """What grows with the nodes of the graph."""


def part_bytes(
    train: TrainConfig, facts: GraphFacts, weights: Weights, states: int, counts: Counts, rows_read: int
) -> PartBytes | None:
    """Return what strategy `partitioned` takes; None with another one.

    `states`: numbers that the optimizer of a table keeps for each of its. `rows_read`: nodes that a batch reads.
    """
    options = train.strategy
    if not isinstance(options, PartitionedConfig):
        return None
    machines, ranks = train.num_machines, train.num_ranks
    num_nodes, world_size = counts.num_nodes, machines * ranks
    row_bytes = facts.feature_dim * _NUMBER_BYTES[options.rows]
    copied = row_bytes if options.rows != "stored" else 2 * facts.feature_dim * (train.precision == "bfloat16")
    remote_rows = min(num_nodes, rows_read * options.exchange_batches) * (1 - 1 / machines)
    fixed = ranks * (remote_rows * row_bytes + (options.cache or 0))
    scaled = ranks * num_nodes * (_NUMBERING_BYTES + (_OFFSET_BYTES + copied) / machines)
    if options.cache is None and machines > 1:
        scaled += ranks * num_nodes / world_size * row_bytes * _CACHE_SHARE
    scaled += ranks * 4 * (weights.table * (1 + states) + num_nodes * (weights.table > 0)) / world_size
    return PartBytes(fixed, scaled)


def largest_graph(needed: float, scaled: float, num_nodes: int, free_bytes: int) -> str:
    """Say how many nodes of such a graph machines like this one would hold.

    `needed` bytes are all that a machine takes for `num_nodes`, of which `scaled` grow with them.
    """
    most = num_nodes * max(0.0, free_bytes - (needed - scaled)) / max(scaled, 1.0)
    return f"as many machines like this one hold {most:,.0f} nodes of such a graph, if their disks do"
