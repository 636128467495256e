"""What is to run on a cluster, and the process that sees to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic_core import to_json

from configs.schema import Recipe
from configs.values.cluster import ClusterConfig
from tasks.cluster.connect import cluster_address
from tasks.cluster.machines import Need
from tasks.processes.children import inherited_environment
from tasks.storage.home import Home
from tasks.supervise import Launcher

ORDER = "GRAPHMILL_CLUSTER"
"""Variable with the order of `tasks.cluster.launch`."""


@dataclass(frozen=True)
class Order:
    """Processes of one program on a cluster."""

    address: str
    config: ClusterConfig
    home: str
    work: str
    """Folder in the home that the program writes into, with its job."""
    variables: dict[str, str]
    ranks: int
    need: Need
    """Of a rank."""
    shares_files: bool
    """Whether ranks read what others write into the work folder: all machines have to see the home."""


@dataclass(frozen=True)
class ShardOrder:
    """Shards on a cluster."""

    address: str
    config: ClusterConfig
    home: str
    work: str
    """A folder in the home by which machines notice that they see it."""


def ordered(recipe: Recipe, home: Home, work: Path, variables: dict[str, str], need: Need) -> Launcher:
    """Return what runs a recipe's ranks on its cluster; `need` is that of a rank.

    Raises RecipeError: no cluster is known.
    """
    train, said = recipe.train, recipe.cluster.rank_memory_gb
    if said is not None:
        need = replace(need, memory_bytes=1e9 * said)
    order = Order(
        cluster_address(recipe.cluster, home),
        recipe.cluster,
        str(home.root),
        str(work),
        variables,
        train.num_ranks,
        need,
        train.ranks_share_files,
    )
    environment = {**inherited_environment(), **variables, ORDER: to_json(order).decode()}
    return Launcher(("-m", "tasks.cluster.launch"), environment)


def shard_order(recipe: Recipe, home: Home) -> Callable[[Path], dict[str, str]]:
    """Return what makes the variables of `tasks.cluster.shards`, given a folder in the home. Raises RecipeError."""
    address = cluster_address(recipe.cluster, home)

    def variables(folder: Path) -> dict[str, str]:
        return {ORDER: to_json(ShardOrder(address, recipe.cluster, str(home.root), str(folder))).decode()}

    return variables
