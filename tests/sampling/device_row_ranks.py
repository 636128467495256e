"""What each rank of tests/sampling/test_rows_on_devices.py runs: `python -m ... FOLDER LOCAL_SIZE`.

The devices are the CPU, and gloo takes NCCL's place; WholeGraph's is taken by a few functions of the same names.
"""

from __future__ import annotations

import itertools
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from models.block import Batch
from tasks.sampling.neighborhoods.in_edges import Seeds
from tasks.sampling.parts import device_rows
from tasks.sampling.parts.device_rows import ExchangedRows
from tasks.sampling.parts.exchange import Exchange
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.neighborhoods import PartNeighborhoods
from tasks.sampling.parts.wholegraph import WholeGraphRows
from tasks.sampling.rows.features import FeatureSource
from tasks.storage.graph_store import GraphStore
from tasks.train.loaders.neighbor import Neighborhoods
from tasks.train.ranks.collectives import from_all, joined
from tasks.train.strategies.base import Ranks
from tests.sampling.part_ranks import batches, same
from tests.train.two_processes import end

CPU = torch.device("cpu")
KINDS: tuple[Any, ...] = (
    ("stored", np.float16),
    ("stored", np.float32),
    ("float16", np.float32),
    ("bfloat16", np.float16),
    ("int8", np.float32),
)
"""What rows are held as, of features stored as."""
WANTED = ((torch.float32, False), (torch.float32, True), (torch.bfloat16, True))
"""What they are given out as, and whether a mean is taken."""


class Table:
    """Stands in for a WholeMemoryTensor: ranks put their rows together whenever they gather."""

    def __init__(self, width: int, dtype: torch.dtype, sizes: list[int]) -> None:
        first = sum(sizes[: dist.get_rank()])
        self.local, self.first = torch.zeros(sizes[dist.get_rank()], width, dtype=dtype), first

    def get_local_tensor(self) -> tuple[torch.Tensor, int]:
        return self.local, self.first

    def gather(self, ids: torch.Tensor) -> torch.Tensor:
        assert ids.dim() == 1
        assert ids.dtype in (torch.int32, torch.int64)
        return torch.cat(from_all(self.local))[ids]


def install_stand_in() -> None:
    def create(ranks: Any, kind: str, place: str, shape: list[int], dtype: Any, strides: None, sizes: list[int]) -> Any:
        assert (kind, place, sum(sizes)) == ("distributed", "cuda", shape[0])
        assert min(sizes) > 0
        return Table(shape[1], dtype, sizes)

    package, functions = ModuleType("pylibwholegraph"), ModuleType("pylibwholegraph.torch")
    package.__spec__ = ModuleSpec("pylibwholegraph", None)
    package.torch = functions  # type: ignore[attr-defined]
    functions.init = lambda rank, size, local_rank, local_size, level: None  # type: ignore[attr-defined]
    functions.get_global_communicator = lambda backend: SimpleNamespace(barrier=dist.barrier)  # type: ignore[attr-defined]
    functions.create_wholememory_tensor = create  # type: ignore[attr-defined]
    sys.modules |= {"pylibwholegraph": package, "pylibwholegraph.torch": functions}


def source(store: GraphStore, stored: Any, options: dict[str, Any], *, labelled: bool) -> FeatureSource:
    """Features, and labels, which stay in CPU memory."""
    return FeatureSource(store["feat"].astype(stored), None, **options, label=store["label"] if labelled else None)


def whole_batches(many: PartNeighborhoods, groups: list[list[Seeds]]) -> list[Any]:
    """Blocks and inputs, once all is there: features come in the order of the steps, when all has been sampled."""
    found = [around for group in groups for around in many.around_all(group)]
    complete = [Batch(blocks, inputs, torch.zeros(0), 0).with_features() for blocks, inputs in found]
    return [[batch.blocks, batch.inputs] for batch in complete]


def main(folder: Path, local_size: int) -> None:
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    install_stand_in()
    store = GraphStore.open(folder)
    with joined(Ranks(rank, world_size, rank % local_size, local_size), CPU):
        manifest: Any = store.manifest
        bounds = np.asarray(manifest.rank_bounds(world_size))
        part = PartGraph(store, bounds, Exchange(rank, world_size), local_size, cache_bytes=20 * 40)
        for (kind, stored), (dtype, fused) in itertools.product(KINDS, WANTED):
            fanouts, at_once = ((-1, 2, -1), 50 * 7) if fused else ((4, 2), 1 << 27)
            device_rows._NUMBERS_AT_ONCE = at_once
            hop: Any = "fused" if fused else "sampled"
            options: dict[str, Any] = {"dtype": dtype, "rows": kind}
            whole = source(store, stored, options, labelled=not fused)
            one = Neighborhoods(store, whole, fanouts, first_hop=hop)
            own = source(part, stored, {**options, "rows_on": "device"}, labelled=not fused)
            assert own.table is None
            for of, cached in ((ExchangedRows, False), (ExchangedRows, True), (WholeGraphRows, True)):
                many = PartNeighborhoods(part, own, fanouts, fused=fused)
                rows = many.features.device_rows = of(part, own, CPU)
                assert len(rows.feat) == bounds[rank + 1] - bounds[rank]
                if cached:
                    rehearsed = batches(rank, 4, manifest.num_nodes)
                    many.keep_most_read([rehearsed[:2], rehearsed[2:]])
                    assert (len(rows.kept) > 0) == (of is ExchangedRows)
                groups = [batches(rank, count, manifest.num_nodes) for count in (1, 3, 2)]
                expected = [list(around) for group in groups for around in one.around_all(group)]
                same(whole_batches(many, groups), expected)
    print("done", rank)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
    end()
