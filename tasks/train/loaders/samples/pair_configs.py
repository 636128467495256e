"""Options of the loaders of pairs: where tables that are trained by samples get their positive ones from."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from configs.base import ComponentConfig
from configs.registry import LOADERS


class PairLoaderConfig(ComponentConfig):
    """What every loader of pairs says of itself."""

    families: ClassVar[tuple[str, ...]] = ("table",)
    tasks: ClassVar[tuple[str, ...]] = ("node", "link")

    edge_weights: bool = True
    """Take edges in proportion to their weights, where the graph has some."""


@LOADERS.options("edges", "samples.edges")
class EdgesConfig(PairLoaderConfig):
    """Pairs that an edge joins, drawn at random (LINE, arXiv:1503.03578)."""

    families: ClassVar[tuple[str, ...]] = ("table", "layout")
    tasks: ClassVar[tuple[str, ...]] = ("node", "link", "graph", "layout")

    name: str = "edges"


@LOADERS.options("edge_passes", "samples.edge_passes")
class EdgePassesConfig(PairLoaderConfig):
    """Pairs that an edge joins, in passes over all edges in a random order, each taken as often as its weight says.

    Faster than `edges`, the more so the larger the graph; takes 16 bytes an edge or less.
    """

    families: ClassVar[tuple[str, ...]] = ("table", "layout")
    tasks: ClassVar[tuple[str, ...]] = ("node", "link", "graph", "layout")

    name: str = "edge_passes"


@LOADERS.options("walks", "samples.walks")
class WalksConfig(PairLoaderConfig):
    """Pairs that are near each other on random walks (DeepWalk, arXiv:1403.6652; node2vec, arXiv:1607.00653)."""

    families: ClassVar[tuple[str, ...]] = ("table", "multiplex")

    name: str = "walks"
    length: int = Field(default=40, ge=2, le=100_000)
    """Nodes of a walk."""
    window: int = Field(default=5, ge=1, le=100_000)
    """Nodes so many steps apart are pairs at most (GraphVite's augmentation distance)."""
    shrink: bool = False
    """Each node draws a window of its own from 1 to `window`, as in word2vec; else all pairs within it are taken."""
    start: Literal["nodes", "degree"] = "nodes"
    """Walks begin at all nodes alike, as in DeepWalk; or by degree, as in GraphVite, so that nodes are met by degree
    from the first step on."""
    forward: bool = False
    """Only what comes after a node on a walk is near it; else what came before it is too."""
    p: float = Field(default=1.0, gt=0, le=1e6)
    """node2vec: the larger, the less a walk goes back to where it has just been."""
    q: float = Field(default=1.0, gt=0, le=1e6)
    """node2vec: the larger, the nearer a walk stays to where it was before."""
