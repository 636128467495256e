"""Options of the loaders of triples."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from configs.base import ComponentConfig
from configs.registry import LOADERS


class TripleLoaderConfig(ComponentConfig):
    """What every loader of triples says of itself."""

    families: ClassVar[tuple[str, ...]] = ("knowledge",)
    tasks: ClassVar[tuple[str, ...]] = ("triple",)
    against_all: ClassVar[bool] = False
    """Whether a query is compared with all entities, and not with drawn ones."""


@LOADERS.options("triples", "samples.triples")
class TriplesConfig(TripleLoaderConfig):
    """Triples in a new order each epoch, against entities that are drawn and shared by some of them."""

    name: str = "triples"
    batch_size: int = Field(default=512, ge=1, le=1 << 20)
    """Triples whose gradients are added up before their rows move."""
    negatives: int = Field(default=256, ge=1, le=1 << 20)
    """Entities that are drawn for each end that is asked for."""
    share: int | None = Field(default=None, ge=1, le=1 << 20)
    """Triples that share what is drawn: the more, the faster; null: all of a batch."""
    power: float = Field(default=0.0, ge=0, le=4)
    """Entities are drawn in proportion to the number of their triples to this power; 0: all alike."""
    known_end: bool = False
    """Compare each query with the end that it knows, too. Few entities are related to themselves, yet that end is what
    most scorers find nearest, and it is hardly ever drawn among many."""


@LOADERS.options("one_vs_all", "samples.all_entities")
class OneVsAllConfig(TripleLoaderConfig):
    """Triples in a new order each epoch, each end against all entities (1vsAll, arXiv:1705.10744)."""

    against_all: ClassVar[bool] = True

    batch_size: int = Field(default=512, ge=1, le=1 << 20)
    """Triples whose gradients are added up before the rows move."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Share of the truth that is dealt out over all entities."""


@LOADERS.options("k_vs_all", "samples.all_entities")
class KVsAllConfig(OneVsAllConfig):
    """Queries in a new order each epoch, all their true entities at once against all others (KvsAll, arXiv:1707.01476).

    A query is a head and a relation, or a relation and a tail.
    """

    batch_size: int = Field(default=512, ge=1, le=1 << 20)
    """Queries whose gradients are added up before the rows move."""
