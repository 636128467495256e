"""Every machine holds its parts of the graph and nothing else."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from configs.base import ComponentConfig
from configs.errors import DataError, RecipeError
from configs.registry import STRATEGIES
from configs.training import TrainConfig
from tasks.storage.graph_store import GraphStore
from tasks.storage.manifests import PartitionManifest
from tasks.train.strategies.base import PartStrategy, Ranks


@STRATEGIES.register("partitioned")
class Partitioned(PartStrategy):
    """Sampling and features go through all-to-all messages; what is drawn is what the whole graph would give.

    With seeds=shuffled all ranks share one order of seeds.
    """

    loaders = ("neighbor", "edge")
    makes_together = True

    def __init__(self, config: ComponentConfig, ranks: Ranks) -> None:
        super().__init__(config, ranks)
        self.rows = self.config.rows
        self.exchange_batches = self.config.exchange_batches

    def check_options(self, train: TrainConfig, loader: str | None, num_parts: int) -> None:
        """Refuse a partition that the ranks cannot share, and what wants the whole graph."""
        super().check_options(train, loader, num_parts)
        if (train.sampling_threads or 1) > 1:
            raise RecipeError(
                "train.strategy=partitioned makes batches in one thread a rank, since all ranks make them together; "
                "set train.sampling_threads=1, or take more train.num_ranks"
            )
        if train.self_training is not None:
            raise RecipeError(
                "train.strategy=partitioned does not go with train.self_training, which reads predictions of all "
                "nodes; remove one of them"
            )

    def check(self, train: TrainConfig, loader: str, manifest: PartitionManifest) -> None:
        """Refuse rows in fewer bits where there are no numbers, too."""
        super().check(train, loader, manifest)
        if self.config.rows != "stored" and not manifest.feature_dim:
            raise RecipeError(
                f"train.strategy.rows={self.config.rows} is for numeric features of nodes, and {manifest.dataset} has "
                "none; remove it"
            )

    def open(self, store: GraphStore) -> GraphStore:
        """Open this machine's parts; all ranks together."""
        from tasks.sampling.parts.graph import PartGraph
        from tasks.sampling.parts.ranges import Exchange, Ranges

        manifest, ranks = store.manifest, self.ranks
        assert isinstance(manifest, PartitionManifest)
        bounds = np.asarray(manifest.rank_bounds(ranks.world_size))
        exchange, main_exchange = (Exchange(ranks.rank, ranks.world_size) for _ in range(2))
        self.ranges = Ranges(bounds, main_exchange)  # the other one is for the thread that makes batches
        own = self.config.seeds == "own"
        cache = self.config.cache
        self._compare_machines(manifest)
        part = PartGraph(store, bounds, exchange, ranks.of_machine, own_seeds=own, cache_bytes=cache)
        if own:
            counts = exchange.gather(np.array([part.num_seeds]))
            self._refuse_empty(counts, manifest)
            self.largest = int(counts.max())
        return part

    def _compare_machines(self, manifest: PartitionManifest) -> None:
        """Say where the parts were made for another number of machines."""
        machines, made_for = self.ranks.machines, manifest.report.get("partition", {}).get("machines", 1)
        if self.ranks.is_main and made_for % machines:
            print(
                f"parts were made for {made_for} machine(s), and {machines} train: with partition.machines={machines} "
                "fewer edges lie between them (if no machine is missing)",
                flush=True,
            )

    def _refuse_empty(self, counts: NDArray[np.int64], manifest: PartitionManifest) -> None:
        """Raise DataError where a rank has no seeds; counts (world_size,) are those of all."""
        empty = np.flatnonzero(counts == 0)
        if not len(empty):
            return
        rank = int(empty[0])
        balance = ", or partition.balance_train=true (metis and coarsened can)" if manifest.split_rows.are_nodes else ""
        raise DataError(
            f"the parts of {len(empty)} of {len(counts)} ranks hold nothing to train on, the first of them rank "
            f"{rank}; set train.strategy.seeds=shuffled{balance}, or take fewer ranks"
        )
