"""The relational sampler against a plain Python reference, draws against probabilities, and what a cut hides."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.sampling.relational.sampler import RelationalSampler
from tasks.storage.graph_store import ALWAYS
from tests.sampling.relational.typed_graphs import check_sample, random_graph


@pytest.mark.parametrize("times", ["both", "edge", "node", "none"])
@pytest.mark.parametrize("recent", [False, True])
@pytest.mark.parametrize("ids", [np.int32, np.int64])
def test_samples_are_those_of_the_reference(times: str, recent: bool, ids: type) -> None:
    if recent and times == "none":
        pytest.skip("nothing is newer than anything")
    for seed in range(3):
        graph = random_graph(seed, times=times, ids=ids)
        edges = graph.edges()
        fanouts = {"default": (3, 2), edges.relations[0].name: (-1, 0), edges.relations[3].name: (70, 1)}
        sampler = RelationalSampler(edges, fanouts, "recent" if recent else "uniform")
        rng = np.random.default_rng(seed)
        nodes = rng.integers(0, len(graph.node_type), 19)
        for cuts in (None, rng.integers(-6, 22, 19), np.full(19, 7), np.full(19, ALWAYS + 1), np.full(19, 1 << 62)):
            sample = sampler.sample(nodes, cuts, seed)
            check_sample(graph, edges, sample, (nodes, cuts), fanouts, recent)
