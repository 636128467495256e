"""Options of the evaluators, apart from their code: recipes are checked without what they compute with."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from configs.base import ComponentConfig, StrTuple
from configs.metric_names import MAX_HITS, MAX_LIST, TopRows
from configs.registry import EVALUATORS


class ByRelationConfig(ComponentConfig):
    """Options of what measures links that are predicted by relation."""

    relations: StrTuple = ()
    """Links predicted by relation (gatne): the relations whose mean judges; none: all. The others are shown all the
    same."""


@EVALUATORS.options("accuracy", "evaluators")
class AccuracyConfig(ComponentConfig):
    """Share of right predictions; of several label columns the mean of their accuracies, as OGB does."""


@EVALUATORS.options("f1", "evaluators")
class F1Config(ByRelationConfig):
    """F1, macro (classes weigh alike) or micro (rows weigh alike); of links, of as many best ones as are edges."""

    average: Literal["macro", "micro"] = "macro"
    """`macro`: mean of the classes' F1; `micro`: over all decisions at once."""


@EVALUATORS.options("rocauc", "evaluators")
class RocAucConfig(ByRelationConfig):
    """Area under the ROC curve: mean over label columns as OGB; classes one versus rest; edges against negatives."""


@EVALUATORS.options("average_precision", "evaluators")
class AveragePrecisionConfig(ByRelationConfig):
    """Average precision: mean over label columns as OGB, or classes one versus rest (of two the rarer); of edges."""


@EVALUATORS.options("top", "evaluators")
class TopConfig(ComponentConfig):
    """Precision, recall or lift of the rows with the highest scores: so many, or a share; columns as with `ap`."""

    metric: Literal["precision", "recall", "lift"] = "precision"
    """`precision`: their share of positives; `recall`: share of all positives that are among them; `lift`: precision
    over the share of positives in all rows."""
    rows: TopRows = "100"
    """How many rows: `100`, or `1%` of a split."""


@EVALUATORS.options("pr_auc", "evaluators")
class PrAucConfig(ByRelationConfig):
    """Area under the curve of precision and recall, by trapezoids between its points: edges against negatives."""


@EVALUATORS.options("rmse", "evaluators")
class RmseConfig(ComponentConfig):
    """Root mean squared error, the mean over label columns as OGB; lower is better."""


@EVALUATORS.options("mae", "evaluators")
class MaeConfig(ComponentConfig):
    """Mean absolute error, the mean over label columns; lower is better."""


@EVALUATORS.options("r2", "evaluators")
class R2Config(ComponentConfig):
    """R², the share of the labels' variance that is explained, the mean over label columns; 0 is their own mean."""


@EVALUATORS.options("mrr", "evaluators")
class MrrConfig(ByRelationConfig):
    """Mean reciprocal rank of true edges, or triples' entities, with Hits@1, 3 and 10; ties take the middle rank."""


@EVALUATORS.options("hits", "evaluators")
class HitsConfig(ByRelationConfig):
    """Hits@K: share of true edges that score above the K-th best negative, as OGB does (a tie is a miss).

    Of triples: of true entities whose rank is at most K; tied ones take the middle rank.
    """

    k: int = Field(default=20, ge=1, le=MAX_HITS)
    """How many of the first places count."""


@EVALUATORS.options("ranking", "ranked")
class RankingConfig(ComponentConfig):
    """Recommendations: MAP, nDCG, recall, precision and hits of the first K of each row's list, and MRR."""

    metric: Literal["map", "ndcg", "recall", "precision", "hits", "mrr"] = "map"
    """Which one judges."""
    k: int = Field(default=10, ge=1, le=MAX_LIST)
    """How many of the first places count."""


@EVALUATORS.options("auto", "evaluators")
class AutoEvaluatorConfig(ByRelationConfig):
    """OGB's own evaluator for OGB data sets, else the metric that the data set names."""


@EVALUATORS.options("ogb", "ogb")
class OgbConfig(ComponentConfig):
    """OGB's evaluator of the data set."""
