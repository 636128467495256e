"""Options of the transforms, apart from their code: recipes are checked without what they compute with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from configs.base import ComponentConfig, StrTuple
from configs.matching import did_you_mean
from configs.registry import MODELS, TRANSFORMS

_STEPS = ("in", "out")
_MOST_STEPS, _MOST_LABEL_STEPS = 3, 2


@TRANSFORMS.options("hops", "hops")
class HopsConfig(ComponentConfig):
    """Append means of features and shares of training labels over paths, each direction by itself; stands last."""

    features: StrTuple = ("in",)
    """Paths over which the features so far are averaged, of 1 to 3 steps: in, out, out-in, ..."""
    labels: StrTuple = ()
    """Paths, of 1 or 2 steps, over which shares of the training nodes' classes are taken, never of the node's own."""

    @field_validator("features", "labels")
    @classmethod
    def _known_paths(cls, value: tuple[str, ...], info: Any) -> tuple[str, ...]:
        most = _MOST_STEPS if info.field_name == "features" else _MOST_LABEL_STEPS
        for path in value:
            steps = path.split("-")
            wrong = next((step for step in steps if step not in _STEPS), None)
            if wrong is not None:
                raise ValueError(f"{path!r} has a step {wrong!r}{did_you_mean(wrong, _STEPS)}; steps are in and out")
            if len(steps) > most:
                raise ValueError(f"{path!r} has {len(steps)} steps; {info.field_name} take at most {most}")
            if value.count(path) > 1:
                raise ValueError(f"{path!r} is listed twice")
        return value


class TransformConfig(ComponentConfig):
    """Options that all column transforms have."""

    columns: StrTuple = ()
    """Feature columns to work on; none named: all that the transform can take (numeric ones, as a rule)."""


@TRANSFORMS.options("codes", "columns")
class CodesConfig(TransformConfig):
    """Number the categories that occur in the training split; all others share one code of their own, the last."""

    max_categories: int = Field(default=1_000_000, ge=1)
    """Refuse more than that."""


@TRANSFORMS.options("one_hot", "columns")
class OneHotConfig(TransformConfig):
    """One 0/1 number for each category of the training split, and one for all others; numeric from then on."""

    max_categories: int = Field(default=1000, ge=1)
    """Refuse more than that: the feature matrix would have as many columns."""


@TRANSFORMS.options("degree", "degree")
class DegreeConfig(ComponentConfig):
    """Add a node's degree as a feature: in- and out-degree, or one number where the graph is symmetric."""

    log: bool = True
    """log(1 + degree) instead of the degree itself."""


@TRANSFORMS.options("edge_mean", "degree")
class EdgeMeanConfig(ComponentConfig):
    """Add the mean of a node's in-edges' features: what nodes without features of their own can start from."""


@TRANSFORMS.options("embedding", "embedding")
class EmbeddingConfig(ComponentConfig):
    """Add vectors of the nodes: those of a registered model, or what a factorisation makes of the graph's own edges."""

    checks_leaks: ClassVar[bool] = True
    """Whether what the model's training saw is compared with what is held out; serving holds nothing out."""

    model: str | None = None
    """Registered model whose vectors are taken, by the nodes' ids: NAME@champion, NAME@ALIAS or NAME@VERSION."""
    allow_leak: bool = False
    """model: take vectors also where their training saw what this recipe holds out; the report says so."""
    most_missing: float = Field(default=0.5, ge=0, le=1)
    """model: share of the nodes that may be without a vector, and get zeros."""
    vectors: str | None = Field(default=None, pattern=r"^[0-9a-f]{24}$")
    """model: name of the vectors in the home; filled in, with the version, when a run begins."""
    method: str | None = None
    """Without a model: prone (the default), fastrp or netmf; of links that are held out it reads nothing. A model that
    was trained with such vectors predicts for the graph of its training only."""
    dim: int | None = Field(default=None, ge=1, le=65_536)
    """method: width of the vectors; null: 64. A registered model has its own."""
    options: dict[str, Any] = Field(default_factory=dict)
    """method: its further options (`graphmill models prone`)."""
    seed: int = Field(default=0, ge=0)
    """method: seed of what it draws."""

    @property
    def is_open(self) -> bool:
        """Whether it names a registered model, and nobody has looked yet which version that is."""
        return self.model is not None and self.vectors is None

    def method_options(self) -> ComponentConfig:
        """Return the options of the method."""
        return MODELS.config({**self.options, "name": self.method, "dim": self.dim})

    @model_validator(mode="before")
    @classmethod
    def _default_method(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("model") is None:
            defaults = {"method": "prone", "dim": 64}
            return data | {name: value for name, value in defaults.items() if data.get(name) is None}
        return data

    @model_validator(mode="after")
    def _either(self) -> EmbeddingConfig:
        chosen, others = ("model", OF_METHODS) if self.model is not None else ("method", OF_MODELS)
        for name in others:
            if getattr(self, name) != type(self).model_fields[name].get_default(call_default_factory=True):
                raise ValueError(
                    f"{name} is not an option of embedding with {chosen}={getattr(self, chosen)}; leave it out"
                )
        if self.model is None:
            self._check_method(str(self.method))
            return self
        name, _, version = self.model.partition("@")
        if not name or not version:
            choice = f", or method={name}, computed from this graph's edges" if self.model in _methods() else ""
            raise ValueError(f"model={self.model} is of the form NAME@VERSION: {name or 'NAME'}@champion{choice}")
        if self.vectors is not None and not version.isdecimal():
            raise ValueError(f"vectors are those of one version, and model={self.model} may be any; leave vectors out")
        return self

    def _check_method(self, method: str) -> None:
        fit = _methods()
        if method not in fit:
            raise ValueError(
                f"method={method}{did_you_mean(method, fit)} is not computed at once from a graph's edges, as "
                f"{', '.join(fit)} are"
            )
        try:
            self.method_options()
        except ValidationError as error:
            told = [".".join(map(str, each["loc"])) + ": " + each["msg"] for each in error.errors()]
            raise ValueError("options: " + "; ".join(told).replace(": Value error, ", "")) from error


@TRANSFORMS.options("served_embedding", "embedding", listed=False)
class ServedEmbeddingConfig(EmbeddingConfig):
    """The transform embedding where nothing is held out; `graphmill predict` puts it into recipes."""

    checks_leaks = False


OF_METHODS = ("method", "dim", "options", "seed")
"""Options of the transform embedding that compute vectors."""
OF_MODELS = ("allow_leak", "most_missing", "vectors")
"""Those that take a registered model's."""


def from_models(transforms: Iterable[ComponentConfig]) -> list[EmbeddingConfig]:
    """Return those of some transforms that take the vectors of a registered model."""
    return [one for one in transforms if isinstance(one, EmbeddingConfig) and one.model is not None]


def from_methods(transforms: Iterable[ComponentConfig]) -> list[EmbeddingConfig]:
    """Return those of some transforms that compute vectors of the graph itself."""
    return [one for one in transforms if isinstance(one, EmbeddingConfig) and one.model is None]


def _methods() -> list[str]:
    return [name for name in MODELS.names() if getattr(MODELS.config_class(name), "family", "") == "factors"]


@TRANSFORMS.options("normalize_rows", "columns")
class NormalizeRowsConfig(TransformConfig):
    """x / ||x||: each node's row of a column to length 1 (bags of words, as Kipf and Welling); rows of zeros stay."""

    norm: Literal["l1", "l2"] = "l1"
    """Sum of magnitudes, or Euclidean length."""


@TRANSFORMS.options("fill_mean", "columns", listed=False)
class FillMeanConfig(TransformConfig):
    """Put the mean of the training rows' values in the place of NaN (`missing: mean` of a users' table)."""


@TRANSFORMS.options("standardize", "columns")
class StandardizeConfig(TransformConfig):
    """Mean 0 and variance 1 on the training split: (x - mean) / std, each value of a column by itself."""


@TRANSFORMS.options("min_max", "columns")
class MinMaxConfig(TransformConfig):
    """Map the training split's range to 0..1: (x - min) / (max - min); other rows may fall outside unless clipped."""

    clip: bool = True
    """Cut values beyond the training split's range."""


@TRANSFORMS.options("log1p", "columns")
class Log1pConfig(TransformConfig):
    """sign(x) · log(1 + |x|): tames counts and amounts; learns nothing."""
