"""Tables in blocks of rows: each worker trains a pair of blocks that no other touches."""

from __future__ import annotations

from configs.errors import RecipeError
from configs.registry import STRATEGIES
from tasks.storage.manifests import GraphManifest
from tasks.train.strategies.base import Ranks
from tasks.train.strategies.configs import BlockGridConfig


@STRATEGIES.register("block_grid")
class BlockGrid:
    """GraphVite's grid (arXiv:1903.00757, section 3.2): blocks of centres against blocks of contexts."""

    def __init__(self, config: BlockGridConfig, ranks: Ranks) -> None:
        self.config, self.ranks = config, ranks

    @property
    def num_blocks(self) -> int:
        """Blocks of each table."""
        return self.config.blocks or 1

    def check(self, manifest: GraphManifest) -> None:
        """Raise RecipeError for what cannot work on a graph. Asked before any worker starts."""
        if self.num_blocks > manifest.num_nodes:
            raise RecipeError(
                f"train.strategy.blocks={self.num_blocks} is more than the {manifest.num_nodes:,} nodes of "
                f"{manifest.dataset}; lower it"
            )
        if self.ranks.world_size > 1:
            raise RecipeError(
                "train.strategy=block_grid trains in one process so far: set train.num_ranks=1 and "
                "train.num_machines=1; its threads (train.threads) share the work"
            )

    def rounds(self, *, shared: bool) -> list[list[tuple[int, int]]]:
        """Return which pairs of blocks are trained side by side: lists whose pairs share no block, all pairs once.

        `shared`: some table is for both ends. (i, j) and (j, i) and any other pair with i or j must not meet then: a
        list is a round of a tournament, half as wide.
        """
        n = self.num_blocks
        if not shared:
            return [[(row, (row + offset) % n) for row in range(n)] for offset in range(n)]
        found = [[(block, block) for block in range(n)]]
        players = n + n % 2  # an odd one out meets the number n, which is nobody
        for number in range(players - 1):
            met = [(number, players - 1)]
            met += [((number + k) % (players - 1), (number - k) % (players - 1)) for k in range(1, players // 2)]
            met = [(i, j) for i, j in met if max(i, j) < n]
            found += [met, [(j, i) for i, j in met]]
        return [pairs for pairs in found if pairs]
