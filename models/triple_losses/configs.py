"""Options of the losses of triples, apart from their code: recipes are checked without torch."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from configs.base import ComponentConfig
from configs.registry import TRIPLE_LOSSES


class TripleLossConfig(ComponentConfig):
    """What every loss of triples says of itself."""

    against_all: ClassVar[bool] = True
    """Whether it takes scores of all entities, some of which are true, and not of drawn ones alone."""
    of_drawn: ClassVar[tuple[str, ...]] = ()
    """Options of drawn entities, which mean nothing where none is drawn."""


@TRIPLE_LOSSES.options("softmax", "losses")
class SoftmaxConfig(TripleLossConfig):
    """Cross entropy: the true entity against the others, as classes (arXiv:1705.10744)."""

    of_drawn: ClassVar[tuple[str, ...]] = ("negative_weight",)

    name: str = "softmax"
    negative_weight: Annotated[float, Field(gt=0, le=1e12)] | Literal["all"] = "all"
    """How many times a drawn entity counts beside the true one. all: as many as there are entities for each drawn one,
    as in a sampled softmax (arXiv:1412.2007): what is drawn stands for all, and a true score has to be higher than all
    others', not than theirs alone."""


@TRIPLE_LOSSES.options("logistic", "losses")
class LogisticConfig(TripleLossConfig):
    """Each triple by itself is true or false: binary cross entropy of the scores (arXiv:1606.06357)."""

    of_drawn: ClassVar[tuple[str, ...]] = ("adversarial", "negative_weight")

    name: str = "logistic"
    margin: float = Field(default=0.0, ge=-1000, le=1000)
    """Added to scores: what a distance is compared with. RotatE's gamma (arXiv:1902.10197)."""
    adversarial: float = Field(default=0.0, ge=0, le=1000)
    """Drawn entities count by the softmax of so many times their scores: RotatE's alpha. 0: all alike."""
    negative_weight: float = Field(default=1.0, gt=0, le=1_000_000)
    """What the drawn entities of a triple count together, against the true one."""


@TRIPLE_LOSSES.options("margin", "losses")
class MarginConfig(TripleLossConfig):
    """The true triple has to score higher than a drawn one by a margin (TransE, NeurIPS 2013)."""

    against_all: ClassVar[bool] = False

    name: str = "margin"
    margin: float = Field(default=1.0, gt=0, le=1000)
    """By so much."""
