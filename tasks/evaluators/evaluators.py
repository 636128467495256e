"""Evaluators: from a model's scores to the numbers that the field prints.

`tasks.evaluators.several.make_evaluator(config, graph)` gives an object with `metric`, `higher_is_better` and a call
`evaluator(prediction) -> {metric: value, ...}` whose first key is the primary metric.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from configs.base import ComponentConfig
from configs.errors import DataError, RecipeError
from configs.matching import did_you_mean, listed
from configs.metric_names import check_metric, hits_of, ranking_metric, top_metric
from configs.registry import EVALUATORS
from tasks.evaluators import metrics
from tasks.evaluators.metrics import Array, Floats
from tasks.evaluators.prediction import Prediction
from tasks.storage.graph_facts import relations_of
from tasks.storage.manifests import GraphManifest

_CLASSIFY = frozenset({"multiclass", "binary", "multilabel"})


class Evaluator:
    """Base of the evaluators: remembers the metric and refuses tasks that it does not measure."""

    Config: ClassVar[type[ComponentConfig]] = ComponentConfig

    higher_is_better: bool = True
    task_types: ClassVar[frozenset[str]] = _CLASSIFY

    def __init__(self, config: ComponentConfig, graph: GraphManifest) -> None:
        """Raises RecipeError if the metric does not fit the task, or links are not predicted in a relation."""
        self.config: Any = config
        self.graph = graph
        self.metric: str = config.name
        names = getattr(config, "relations", ())
        if names and not graph.num_relations:
            raise RecipeError(f"evaluate.evaluator.relations: links of {graph.dataset} are not predicted by relation")
        there = list(relations_of(graph)[: graph.num_relations]) if names else []
        for name in names:
            if name not in there:
                raise RecipeError(
                    f"evaluate.evaluator.relations: unknown relation {name!r}{did_you_mean(name, there)}; there are "
                    f"{listed(there)}"
                )
        self.relations = tuple(sorted(there.index(name) for name in names))
        """Numbers of the relations whose mean it is; empty: all."""
        if graph.task_type not in self.task_types:
            raise RecipeError(
                f"evaluate.evaluator={config.name} measures {', '.join(sorted(self.task_types))} tasks; "
                f"{graph.dataset} is a {graph.task_type} task: leave it at auto or choose another"
            )

    @property
    def names(self) -> Sequence[str]:
        """Names of all that it measures."""
        return (self.metric,)

    def __call__(self, prediction: Prediction) -> dict[str, float]:
        """Measure; the first key is the primary metric. Values are as the field prints them.

        Of links that are predicted by relation, the mean over relations; so too of kinds of negatives.
        """
        by_group = [self.values(group) for group in prediction.groups(self.relations)]
        if not by_group:
            raise DataError("no relation has both edges and negatives on this split; there is nothing to rank")
        return {name: float(np.mean([values[name] for values in by_group])) for name in by_group[0]}

    def values(self, prediction: Prediction) -> dict[str, float]:
        """Measure pairs of one relation, or anything else."""
        value = self.measure(prediction)
        if np.isnan(value):
            raise DataError(f"{self.metric} is not defined on this split: it needs labelled rows of both kinds")
        return {self.metric: value}

    def measure(self, prediction: Prediction) -> float:
        """Return the primary metric, or NaN where it is not defined."""
        raise AssertionError(f"{type(self).__name__} measures nothing")

    def score(self, values: dict[str, float]) -> float:
        """Return the primary metric so that higher is better: errors are negated."""
        return values[self.metric] if self.higher_is_better else -values[self.metric]


@EVALUATORS.register("accuracy")
class Accuracy(Evaluator):
    """Share of right predictions; of several label columns the mean of their accuracies, as OGB does."""

    def measure(self, prediction: Prediction) -> float:
        """Accuracy in 0..1."""
        if prediction.single_label:
            label, predicted = prediction.classes()
            return float(np.mean(label == predicted))
        label, score = prediction.columns()
        return metrics.column_accuracy(label, (score > 0).astype(np.float64))


@EVALUATORS.register("f1")
class F1(Evaluator):
    """F1, macro (classes weigh alike) or micro (rows weigh alike); of links, of as many best ones as are edges."""

    task_types = _CLASSIFY | {"link"}

    def __init__(self, config: ComponentConfig, graph: GraphManifest) -> None:
        super().__init__(config, graph)
        self.metric = f"f1_{self.config.average}" if graph.label_type.has_classes else "f1"

    def measure(self, prediction: Prediction) -> float:
        """F1 in 0..1."""
        if prediction.positive is not None:
            return metrics.f1_of_pairs(*prediction.pairs())
        if prediction.single_label:
            label, predicted = prediction.classes()
            return metrics.f1_of_classes(label, predicted, self.config.average, prediction.num_classes)
        columns, score = prediction.columns()
        return metrics.f1_of_columns(columns, score > 0, self.config.average)


@EVALUATORS.register("rocauc")
class RocAuc(Evaluator):
    """Area under the ROC curve: mean over label columns as OGB; classes one versus rest; edges against negatives."""

    task_types = _CLASSIFY | {"link"}

    def measure(self, prediction: Prediction) -> float:
        """ROC-AUC in 0..1; a tie counts one half."""
        if prediction.positive is not None:
            return metrics.rocauc_of_pairs(*prediction.pairs())
        return metrics.mean_over_tasks(*prediction.columns(), metrics.rocauc)


@EVALUATORS.register("average_precision")
class AveragePrecision(Evaluator):
    """Average precision: mean over label columns as OGB, or classes one versus rest (of two the rarer); of edges."""

    task_types = _CLASSIFY | {"link"}

    def __init__(self, config: ComponentConfig, graph: GraphManifest) -> None:
        super().__init__(config, graph)
        self.metric = "ap"

    def measure(self, prediction: Prediction) -> float:
        """Average precision in 0..1; rows of equal score enter together."""
        if prediction.positive is not None:
            return metrics.average_precision_of_pairs(*prediction.pairs())
        return metrics.mean_over_tasks(*prediction.looked_for(), metrics.average_precision)


@EVALUATORS.register("top")
class Top(Evaluator):
    """Precision, recall or lift of the rows with the highest scores: so many, or a share; columns as with `ap`."""

    def __init__(self, config: ComponentConfig, graph: GraphManifest) -> None:
        super().__init__(config, graph)
        self.metric = f"{self.config.metric}@{self.config.rows}"

    def measure(self, prediction: Prediction) -> float:
        """Precision and recall in 0..1, lift from 0: precision over the share of positives."""
        rows = self.config.rows

        def of_column(label: Array, score: Floats) -> float:
            first = metrics.first_rows(len(label), rows)
            right, positives = metrics.positives_among(label, score, first), np.count_nonzero(label == 1)
            precision, recall = right / first, right / positives
            measured = {"precision": precision, "recall": recall, "lift": precision * len(label) / positives}
            return float(measured[self.config.metric])

        return metrics.mean_over_tasks(*prediction.looked_for(), of_column)


@EVALUATORS.register("pr_auc")
class PrAuc(Evaluator):
    """Area under the curve of precision and recall, by trapezoids between its points: edges against negatives."""

    task_types = frozenset({"link"})

    def measure(self, prediction: Prediction) -> float:
        """Area in 0..1; average precision has steps where this has lines."""
        return metrics.pr_auc_of_pairs(*prediction.pairs())


@EVALUATORS.register("rmse")
class Rmse(Evaluator):
    """Root mean squared error, the mean over label columns as OGB; lower is better."""

    higher_is_better = False
    task_types = frozenset({"regression"})

    def measure(self, prediction: Prediction) -> float:
        """RMSE in the label's units."""
        return metrics.rmse(*prediction.columns())


@EVALUATORS.register("mae")
class Mae(Evaluator):
    """Mean absolute error, the mean over label columns; lower is better."""

    higher_is_better = False
    task_types = frozenset({"regression"})

    def measure(self, prediction: Prediction) -> float:
        """MAE in the label's units."""
        return metrics.mae(*prediction.columns())


@EVALUATORS.register("r2")
class R2(Evaluator):
    """R², the share of the labels' variance that is explained, the mean over label columns; 0 is their own mean."""

    task_types = frozenset({"regression"})

    def measure(self, prediction: Prediction) -> float:
        """At most 1; below 0 where the mean of the rows' own labels is better."""
        return metrics.r2(*prediction.columns())


@EVALUATORS.register("mrr")
class Mrr(Evaluator):
    """Mean reciprocal rank of true edges, or triples' entities, with Hits@1, 3 and 10; ties take the middle rank."""

    task_types = frozenset({"link", "triple"})

    @property
    def names(self) -> Sequence[str]:
        """Names of all that it measures."""
        return metrics.names_with_mrr(of_triples=self.graph.split_rows.are_triples)

    def values(self, prediction: Prediction) -> dict[str, float]:
        """MRR, then the hits that OGB prints beside it; of triples the mean rank, and the MRR if ties were won or lost.

        Triples are judged by the middle rank, as PyKEEN ("realistic") and LibKGE do.
        """
        if prediction.ranks is None:
            return metrics.mrr(*prediction.pairs())
        return metrics.mrr_of_triples(prediction.true_ranks())


@EVALUATORS.register("hits")
class Hits(Evaluator):
    """Hits@K: share of true edges that score above the K-th best negative, as OGB does (a tie is a miss).

    Of triples: of true entities whose rank is at most K; tied ones take the middle rank, as in PyKEEN and LibKGE.
    """

    task_types = frozenset({"link", "triple"})

    def __init__(self, config: ComponentConfig, graph: GraphManifest) -> None:
        super().__init__(config, graph)
        self.metric = f"hits@{self.config.k}"

    def measure(self, prediction: Prediction) -> float:
        """Hits@K in 0..1."""
        if prediction.ranks is not None:
            return metrics.hits_of_triples(prediction.true_ranks(), self.config.k)
        return metrics.hits(*prediction.pairs(), self.config.k)


# What data sets call their metric -> the evaluator that measures it.
_BY_METRIC: dict[str, dict[str, Any]] = {
    **{name: {"name": name} for name in ("accuracy", "f1", "rocauc", "average_precision", "pr_auc")},
    **{name: {"name": name} for name in ("rmse", "mae", "r2", "mrr")},
    "acc": {"name": "accuracy"},
    "f1_macro": {"name": "f1"},
    "f1_micro": {"name": "f1", "average": "micro"},
    "auc": {"name": "rocauc"},
    "ap": {"name": "average_precision"},
}


@EVALUATORS.register("auto")
class Auto(Evaluator):
    """OGB's own evaluator for OGB data sets, else the metric that the data set names."""

    task_types = _CLASSIFY | {"regression", "link", "triple", "ranking"}

    def __init__(self, config: ComponentConfig, graph: GraphManifest) -> None:
        super().__init__(config, graph)
        is_ranking = graph.ranking is not None or graph.ranks_targets
        chosen = {"name": "ogb"} if graph.ogb_name else evaluator_for(graph.metric, is_ranking=is_ranking)
        try:
            self.chosen: Evaluator = EVALUATORS.create(EVALUATORS.config(chosen), graph)
        except RecipeError:
            raise RecipeError(
                f"{graph.dataset} names {graph.metric} as its metric, which does not measure {graph.task_type} tasks: "
                "name another one there (metric), or say evaluate.evaluator"
            ) from None
        self.metric, self.higher_is_better = self.chosen.metric, self.chosen.higher_is_better
        self.chosen.relations = self.relations

    def __call__(self, prediction: Prediction) -> dict[str, float]:
        """What the chosen evaluator measures."""
        return self.chosen(prediction)


def evaluator_for(metric: str, *, is_ranking: bool = False) -> dict[str, Any]:
    """Return name and options of the evaluator of a metric. Raises DataError naming the known metrics.

    `is_ranking`: it is of ranked lists, where `mrr` and `hits@K` are of each row's best.
    """
    try:
        check_metric(metric)
    except ValueError as error:
        raise DataError(str(error)) from None
    most, of_lists, top = hits_of(metric), ranking_metric(metric), top_metric(metric)
    if top is not None and not is_ranking:
        return {"name": "top", "metric": top[0], "rows": top[1]}
    if is_ranking and metric == "mrr":
        return {"name": "ranking", "metric": "mrr"}
    if of_lists is not None and (is_ranking or most is None):
        return {"name": "ranking", "metric": of_lists[0], "k": of_lists[1]}
    return _BY_METRIC[metric] if most is None else {"name": "hits", "k": most}


def single_evaluator(config: ComponentConfig, graph: GraphManifest) -> Evaluator:
    """Build the evaluator of one task: see `tasks.evaluators.several.make_evaluator`."""
    evaluator: Evaluator = EVALUATORS.create(config, graph)
    return evaluator.chosen if isinstance(evaluator, Auto) else evaluator
