"""How many workers share the shards stays out of the key: it must change no byte."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np


def test_workers_change_no_byte(make_dataset: Any, node_splits: Any, preprocess: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 3)).astype(np.float32) * 100
    src, dst = rng.integers(0, 60, (2, 900))
    edges = {"src": src, "dst": dst, "weight": rng.random(900).astype(np.float32)}
    nodes = {"node": (60, {"x": x, "label": rng.integers(0, 2, 60)})}
    data = make_dataset(nodes, {("node", "to", "node"): edges}, node_splits(60))
    transforms = ["standardize", "min_max", "degree", "hops"]

    def backwards(function: Any, items: Any) -> Any:
        with ThreadPoolExecutor(3) as pool:
            return list(pool.map(function, list(items)[::-1]))[::-1]

    found = [
        preprocess(data, transforms=transforms, **options).manifest.files
        for options in ({"workers": 1}, {"workers": 3, "map_shards": backwards})
    ]
    assert found[0] == found[1]
