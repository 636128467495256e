"""Options of the losses, apart from their code: recipes are checked without torch."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from configs.base import ComponentConfig, OwnFileConfig
from configs.registry import LOSSES
from configs.values.class_weight import ClassWeight

_LABELS = {
    "multiclass": "cross_entropy",
    "binary": "binary",
    "multilabel": "binary",
    "regression": "mse",
}
_USUAL = {**_LABELS, "link": "logistic", "ranking": "softmax"}
"""Loss of each type of label, of links and of rankings."""


class LossConfig(OwnFileConfig):
    """What every loss says of itself."""

    label_types: ClassVar[tuple[str, ...]] = tuple(_LABELS)
    """What it is for: types of labels (`configs.label_types`), or `link`, `ranking`, `triple`."""


class ClassLossConfig(LossConfig):
    """What losses of classes have."""

    label_types: ClassVar[tuple[str, ...]] = ("multiclass", "binary", "multilabel")
    class_weight: ClassWeight = "none"
    """How much the rows of a class count: none: all alike; balanced: all classes alike, by how often the training split
    has them (of several label columns the two values of each); or a weight for classes by their names in the data,
    `{fraud: 20}`, where others have 1."""


class NumberLossConfig(LossConfig):
    """What losses of numbers have."""

    label_types: ClassVar[tuple[str, ...]] = ("regression",)


class PairLossConfig(LossConfig):
    """What losses of pairs, triples and rankings have: a true one is compared with drawn ones."""

    label_types: ClassVar[tuple[str, ...]] = ("link", "ranking", "triple")
    against_all: ClassVar[bool] = True
    """Whether it takes scores of all entities, some of which are true, and not of drawn ones alone."""
    of_drawn: ClassVar[tuple[str, ...]] = ()
    """Options of drawn entities, which mean nothing where none is drawn."""


@LOSSES.options("auto", "chosen")
class AutoLossConfig(ClassLossConfig):
    """What is usual: cross_entropy of classes, binary of yes or no, mse of numbers, logistic of links, softmax of
    rankings."""

    label_types: ClassVar[tuple[str, ...]] = tuple(_USUAL)

    name: str = "auto"


@LOSSES.options("cross_entropy", "labels")
class CrossEntropyConfig(ClassLossConfig):
    """Cross entropy of one class of several, by softmax."""

    label_types: ClassVar[tuple[str, ...]] = ("multiclass",)

    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Share of the truth that is dealt out over all classes (arXiv:1512.00567, section 7)."""


@LOSSES.options("binary", "labels")
class BinaryConfig(ClassLossConfig):
    """Cross entropy of yes or no, by the logistic function, of one label or of each of several."""

    label_types: ClassVar[tuple[str, ...]] = ("binary", "multilabel")

    pos_weight: float = Field(default=1.0, gt=0, le=1_000_000)
    """What a 1 counts, where a 0 counts 1; beside `class_weight`."""


@LOSSES.options("focal", "labels")
class FocalConfig(ClassLossConfig):
    """Cross entropy in which rows that the model is sure of, and right, count less (arXiv:1708.02002)."""

    gamma: float = Field(default=2.0, ge=0, le=100)
    """How much less: a row of probability p counts (1 - p)^gamma. 0: cross entropy."""


@LOSSES.options("mse", "labels")
class SquaredErrorConfig(NumberLossConfig):
    """The squared error, which the mean makes least."""


@LOSSES.options("mae", "labels")
class AbsoluteErrorConfig(NumberLossConfig):
    """The absolute error, which the median makes least: outliers count little."""


@LOSSES.options("huber", "labels")
class HuberConfig(NumberLossConfig):
    """Squared where the error is small, absolute where it is large (Huber 1964)."""

    delta: float = Field(default=1.0, gt=0, le=1_000_000)
    """Error from which it is absolute, in standard deviations of the labels of the training split."""


@LOSSES.options("quantile", "labels")
class QuantileConfig(NumberLossConfig):
    """The pinball loss: a share `q` of the labels lies below what is predicted (Koenker and Bassett 1978)."""

    q: float = Field(default=0.5, gt=0, lt=1)
    """That share; 0.5: the median."""


@LOSSES.options("softmax", "pairs")
class SoftmaxConfig(PairLossConfig):
    """Cross entropy: the true one against the others, as classes (arXiv:1705.10744)."""

    of_drawn: ClassVar[tuple[str, ...]] = ("negative_weight",)

    negative_weight: Annotated[float, Field(gt=0, le=1e12)] | Literal["all"] = "all"
    """How many times a drawn one counts beside the true one. all: of triples as many as there are entities for each
    drawn one, as in a sampled softmax (arXiv:1412.2007): what is drawn stands for all, and a true score has to be
    higher than all others', not than theirs alone; of links once."""


@LOSSES.options("logistic", "pairs")
class LogisticConfig(PairLossConfig):
    """Each pair or triple by itself is true or false: binary cross entropy of the scores (arXiv:1606.06357)."""

    of_drawn: ClassVar[tuple[str, ...]] = ("adversarial", "negative_weight")

    margin: float = Field(default=0.0, ge=-1000, le=1000)
    """Added to scores: what a distance is compared with. RotatE's gamma (arXiv:1902.10197)."""
    adversarial: float = Field(default=0.0, ge=0, le=1000)
    """Drawn ones count by the softmax of so many times their scores: RotatE's alpha. 0: all alike."""
    negative_weight: float = Field(default=1.0, gt=0, le=1_000_000)
    """What all that is drawn for a true one counts together, against it."""


@LOSSES.options("margin", "pairs")
class MarginConfig(PairLossConfig):
    """A true one has to score higher than a drawn one by a margin (TransE, NeurIPS 2013; PinSAGE, KDD 2018)."""

    against_all: ClassVar[bool] = False

    margin: float = Field(default=1.0, gt=0, le=1000)
    """By so much."""


@LOSSES.options("bpr", "pairs")
class BprConfig(PairLossConfig):
    """A true one has to score higher than a drawn one, the logistic loss of the difference (arXiv:1205.2618)."""

    against_all: ClassVar[bool] = False


def suits(config: ComponentConfig, label_type: str) -> bool:
    """Whether a loss is for a type of labels, for links or for rankings."""
    return label_type in getattr(config, "label_types", ())


def losses_of(label_type: str) -> list[str]:
    """Return the names of the losses for it."""
    return [name for name in LOSSES.names() if label_type in getattr(LOSSES.config_class(name), "label_types", ())]


def chosen_loss(config: ComponentConfig, label_type: str) -> ComponentConfig:
    """Return a loss, or what is usual for a type of labels where that is `auto`, or for others."""
    is_for = suits(config, label_type) and not isinstance(config, AutoLossConfig)
    return config if is_for else LOSSES.config(_USUAL[label_type])
