"""Options of the transforms, apart from their code: recipes are checked without what they compute with."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from configs.base import ComponentConfig, FloatTuple, StrTuple
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


@TRANSFORMS.options("codes", "categories")
class CodesConfig(TransformConfig):
    """Number the categories that occur in the training split; all others share one code of their own, the last."""

    max_categories: int = Field(default=1_000_000, ge=1)
    """Refuse more than that."""


@TRANSFORMS.options("one_hot", "categories")
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
    """Add vectors of the nodes that a factorisation makes of the graph's edges; of links that are held out, nothing."""

    model: str = "prone"
    """prone, fastrp or netmf."""
    dim: int = Field(default=64, ge=1, le=65_536)
    """Width of the vectors."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Further options of the model (`graphmill models prone`)."""
    seed: int = Field(default=0, ge=0)
    """Seed of what the model draws."""

    def model_options(self) -> ComponentConfig:
        """Return the model's options."""
        return MODELS.config({**self.options, "name": self.model, "dim": self.dim})

    @model_validator(mode="after")
    def _computed_at_once(self) -> EmbeddingConfig:
        fit = [name for name in MODELS.names() if getattr(MODELS.config_class(name), "family", "") == "factors"]
        if self.model not in fit:
            raise ValueError(
                f"model={self.model}{did_you_mean(self.model, fit)} is not computed at once from a graph's edges, as "
                f"{', '.join(fit)} are"
            )
        try:
            self.model_options()
        except ValidationError as error:
            told = [".".join(map(str, each["loc"])) + ": " + each["msg"] for each in error.errors()]
            raise ValueError("options: " + "; ".join(told).replace(": Value error, ", "")) from error
        return self


@TRANSFORMS.options("random_walk_pe", "random_walk")
class RandomWalkConfig(ComponentConfig):
    """Add random-walk return probabilities after 1..steps steps: they tell cycles and density apart."""

    steps: int = Field(default=8, ge=1, le=64)
    """Longest walk."""
    num_walks: int | None = Field(default=None, ge=0)
    """Walks from each node; 0: exact, for sets of small graphs; null: exact on graph tasks, else 64."""
    seed: int = Field(default=0, ge=0)
    """Seed of the walks."""


@TRANSFORMS.options("rank_gauss", "rank_gauss")
class RankGaussConfig(TransformConfig):
    """Normal scores: Phi^-1(rank of x among the training rows), each value of a column by itself."""

    num_quantiles: int = Field(default=1000, ge=10, le=100_000)
    """Points of the learned distribution function."""


@TRANSFORMS.options("bucket", "rank_gauss")
class BucketConfig(TransformConfig):
    """Cut numbers into ranges and keep the range's number as a category (feat_cat)."""

    num_buckets: int = Field(default=10, ge=2, le=10_000)
    """Ranges that hold equally many training rows; equal quantiles merge."""
    boundaries: FloatTuple = ()
    """Own boundaries, ascending, instead of quantiles: k of them make k + 1 ranges, each closed on the left."""

    @model_validator(mode="after")
    def _ascending(self) -> BucketConfig:
        if any(b <= a for a, b in zip(self.boundaries, self.boundaries[1:], strict=False)):
            raise ValueError(f"boundaries must ascend, got {list(self.boundaries)}")
        return self


@TRANSFORMS.options("normalize_rows", "row_norm")
class NormalizeRowsConfig(TransformConfig):
    """x / ||x||: each node's row of a column to length 1 (bags of words, as Kipf and Welling); rows of zeros stay."""

    norm: Literal["l1", "l2"] = "l1"
    """Sum of magnitudes, or Euclidean length."""


@TRANSFORMS.options("fill_mean", "filling", listed=False)
class FillMeanConfig(TransformConfig):
    """Put the mean of the training rows' values in the place of NaN (`missing: mean` of a users' table)."""


@TRANSFORMS.options("standardize", "scaling")
class StandardizeConfig(TransformConfig):
    """Mean 0 and variance 1 on the training split: (x - mean) / std, each value of a column by itself."""


@TRANSFORMS.options("min_max", "scaling")
class MinMaxConfig(TransformConfig):
    """Map the training split's range to 0..1: (x - min) / (max - min); other rows may fall outside unless clipped."""

    clip: bool = True
    """Cut values beyond the training split's range."""


@TRANSFORMS.options("log1p", "scaling")
class Log1pConfig(TransformConfig):
    """sign(x) · log(1 + |x|): tames counts and amounts; learns nothing."""


@TRANSFORMS.options("cast", "scaling")
class CastConfig(TransformConfig):
    """Round to float16 precision; `feat` is stored as float16 if all numeric columns are cast (half the disk)."""

    dtype: Literal["float16"] = "float16"
    """What to cast to."""
