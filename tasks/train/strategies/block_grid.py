"""Tables in blocks of rows: each worker trains a pair of blocks that no other touches."""

from __future__ import annotations

from configs.errors import RecipeError
from configs.registry import STRATEGIES
from tasks.storage.manifests import GraphManifest
from tasks.train.strategies.base import Ranks
from tasks.train.strategies.configs import LEAST_ROWS, BlockGridConfig, most_blocks

Round = list[tuple[int, int]]
"""Pairs of a block of centres and one of contexts that share no block."""


@STRATEGIES.register("block_grid")
class BlockGrid:
    """GraphVite's grid (arXiv:1903.00757, section 3.2): blocks of centres against blocks of contexts.

    `shared` in its functions: some table is for both ends. (i, j) and (j, i) and any other pair with i or j must not
    meet then, and half as many pairs are trained side by side.
    """

    def __init__(self, config: BlockGridConfig, ranks: Ranks) -> None:
        self.config, self.ranks = config, ranks

    def least_blocks(self, *, shared: bool, threads: int = 1) -> int:
        """Return the blocks of each table with which all threads of all ranks have a pair."""
        return self.ranks.world_size * threads * (2 if shared else 1)

    def check(self, manifest: GraphManifest, *, shared: bool) -> None:
        """Raise RecipeError for what cannot work on a graph. Asked before any worker starts."""
        blocks, least = self.config.blocks, self.least_blocks(shared=shared)
        if blocks is not None and self.ranks.world_size > 1 and blocks < least:
            both = ", twice as many as ranks, for some rows are for centres and contexts both" if shared else ""
            raise RecipeError(
                f"train.strategy.blocks={blocks} is too few for {self.ranks.world_size} ranks; give {least} or "
                f"more{both}, or none"
            )
        most = most_blocks(manifest.num_nodes)
        rows = (
            f"the {manifest.num_nodes:,} nodes of {manifest.dataset} make {most:,} blocks of {LEAST_ROWS} rows or more"
        )
        why = "negatives are drawn within a block, and with fewer rows vectors get worse"
        if self.ranks.world_size > 1 and least > most:
            raise RecipeError(
                f"{self.ranks.world_size} ranks train {least} blocks or more, and {rows} ({why}); lower train.num_ranks"
            )
        if blocks is not None and blocks > most:
            raise RecipeError(f"train.strategy.blocks={blocks}: {rows} ({why}); give {most:,} or fewer, or none")

    def rank_of(self, place: int) -> int:
        """Return which rank trains the pair at a place in a round."""
        return place % self.ranks.world_size

    def rounds(self, num_blocks: int, workers: int, *, shared: bool) -> list[Round]:
        """Return all pairs of blocks, each once, in rounds of about so many as there are workers.

        Groups of as many blocks as a round touches at once meet group by group, so that few blocks change from a round
        to the next: those that have no room in memory are read and written as seldom as can be.
        """
        # A tournament of 2 w blocks has w pairs in a round.
        wide = min(num_blocks, 2 * workers if shared and workers > 1 else workers)
        groups = [range(low, min(low + wide, num_blocks)) for low in range(0, num_blocks, wide)]
        all_rounds: list[Round] = []
        for number, rows in enumerate(groups):
            # There and back: the last group of columns of a row of groups is the first of the next.
            for columns in groups if number % 2 == 0 else groups[::-1]:
                all_rounds += _within(rows) if shared and rows == columns else _across(rows, columns)
        return all_rounds


def _across(rows: range, columns: range) -> list[Round]:
    """Return the pairs of a row with a column, neither of them twice in a round."""
    count = max(len(rows), len(columns))
    met = [[(i, (i + offset) % count) for i in range(count)] for offset in range(count)]
    return [
        [(rows[i], columns[j]) for i, j in pairs if i < len(rows) and j < len(columns)]
        for pairs in met
        if any(i < len(rows) and j < len(columns) for i, j in pairs)
    ]


def _within(blocks: range) -> list[Round]:
    """Return the pairs of some blocks with each other and themselves, no block twice in a round: a tournament."""
    n = len(blocks)
    rounds = [[(block, block) for block in blocks]]
    players = n + n % 2  # an odd one out meets the number n, which is nobody
    for number in range(players - 1):
        met = [(number, players - 1)]
        met += [((number + k) % (players - 1), (number - k) % (players - 1)) for k in range(1, players // 2)]
        pairs = [(blocks[i], blocks[j]) for i, j in met if max(i, j) < n]
        rounds += [pairs, [(j, i) for i, j in pairs]]
    return [pairs for pairs in rounds if pairs]
