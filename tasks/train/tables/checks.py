"""What trainings on a block grid cannot work with, whatever their samples are: asked before any process starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.errors import RecipeError
from configs.families.row_training import BlockTrainConfig
from configs.registry import STRATEGIES
from tasks.storage.manifests import PartitionManifest

if TYPE_CHECKING:
    from tasks.train.strategies.block_grid import BlockGrid


def check_grid(train: BlockTrainConfig, manifest: PartitionManifest, *, shared: bool) -> None:
    """Refuse machines without a home that all read, and too many or too few blocks; `shared`: see `BlockGrid`.

    Raises RecipeError.
    """
    # Here and not above: `plan` asks a family for sizes, and needs no numpy.
    from tasks.train.strategies.base import Ranks

    if train.num_machines > 1 and not train.shared_home:
        raise RecipeError(
            "train.strategy=block_grid keeps blocks in files that all machines read: put the home on a file system "
            "that they share and leave train.shared_home=true, or set train.num_machines=1"
        )
    ranks = Ranks(0, train.num_ranks * train.num_machines, 0, train.num_ranks)
    strategy: BlockGrid = STRATEGIES.create(train.strategy, ranks)
    strategy.check(manifest, shared=shared)
