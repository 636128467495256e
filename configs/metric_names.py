"""What data sets call the metric that they are measured by."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from configs.errors import RecipeError, readable
from configs.matching import did_you_mean

METRIC_NAMES: Final = (
    "acc",
    "accuracy",
    "ap",
    "auc",
    "average_precision",
    "f1",
    "f1_macro",
    "f1_micro",
    "mae",
    "mrr",
    "pr_auc",
    "r2",
    "rmse",
    "rocauc",
)
MEASURED: Final = (
    "accuracy",
    "f1",
    "f1_macro",
    "f1_micro",
    "rocauc",
    "ap",
    "pr_auc",
    "rmse",
    "mae",
    "r2",
    "mrr",
    "mrr_optimistic",
    "mrr_pessimistic",
    "mean_rank",
)
"""What evaluators call what they measure; beside these `hits@K` and the metrics of ranked lists."""
ONE_CLASS: Final = 0.9
"""Share of rows of one class from which accuracy tells nothing of the others."""
EVEN_METRICS: Final = ("f1_macro", "rocauc", "ap", "pr_auc")
"""Metrics in which classes weigh alike, however few rows they have."""
MAX_HITS: Final = 10**9
_HITS = re.compile(r"hits@([1-9][0-9]{0,9})")
RANKING_METRICS: Final = ("map", "ndcg", "recall", "precision", "hits")
"""Metrics of ranked lists, of which the first K places count: `map@10`."""
MAX_LIST: Final = 1000
"""Largest K of those."""
_RANKING = re.compile(rf"({'|'.join(RANKING_METRICS)})@([1-9][0-9]{{0,3}})")


_ROWS = r"[1-9][0-9]{0,9}|[0-9]{1,2}(?:\.[0-9]{1,6})?%"
_TOP_EXAMPLES = "precision@100, recall@1% and lift@1%"
_TOP = re.compile(rf"(precision|recall|lift)@({_ROWS})")


def top_metric(metric: str) -> tuple[str, str] | None:
    """Return kind and rows of a metric of the highest scores, such as `precision@100` and `lift@1%`; None: another."""
    match = _TOP.fullmatch(metric)
    return (match.group(1), match.group(2)) if match and match.group(2).strip("0.%") else None


def hits_of(metric: str) -> int | None:
    """Return K of `hits@K`, a whole number from 1 to `MAX_HITS`; None for other words."""
    match = _HITS.fullmatch(metric)
    return int(match.group(1)) if match and int(match.group(1)) <= MAX_HITS else None


def ranking_metric(metric: str) -> tuple[str, int] | None:
    """Return the kind and K of a metric of ranked lists, such as `map@12`, K up to `MAX_LIST`; None for other words."""
    match = _RANKING.fullmatch(metric)
    return (match.group(1), int(match.group(2))) if match and int(match.group(2)) <= MAX_LIST else None


def telling(names: Iterable[str]) -> list[str]:
    """Return the metrics that are worth a column, of all that were measured; the first judges the model.

    Where that is ROC-AUC or average precision, ranks among a whole pool of negatives tell nothing.
    """
    metrics = list(dict.fromkeys(names))
    if not metrics or metrics[0] not in ("rocauc", "ap", "pr_auc"):
        return metrics
    return [name for name in metrics if name != "mrr" and hits_of(name) is None]


def check_metric(metric: str) -> str:
    """Return a metric's name. Raises ValueError naming the known ones."""
    if metric not in METRIC_NAMES and not any(of(metric) for of in (hits_of, ranking_metric, top_metric)):
        _refuse_rows(metric)
        raise ValueError(
            f"unknown metric {readable(metric, 60)!r}{did_you_mean(metric, METRIC_NAMES)}; known: "
            f"{', '.join(METRIC_NAMES)}, hits@K with K from 1 to {MAX_HITS:,}, of recommendations map@K, ndcg@K, "
            f"recall@K and precision@K, up to {MAX_LIST:,}, and of the highest scores {_TOP_EXAMPLES}"
        )
    return metric


def check_measured(metric: str, others: Iterable[str] = ()) -> None:
    """Raise ValueError for what no evaluator measures, `others` apart; of several tasks it stands behind `TASK.`."""
    kind, at, rows = metric.partition("@")  # of rows there may be 0.5%
    name = f"{kind.rpartition('.')[2]}{at}{rows}"
    if name in MEASURED or name in others or any(of(name) for of in (hits_of, ranking_metric, top_metric)):
        return
    _refuse_rows(name)
    raise ValueError(
        f"unknown metric {readable(name, 60)!r}{did_you_mean(name, MEASURED)}; what can be measured: "
        f"{', '.join(MEASURED)}, hits@K, of recommendations map@K, ndcg@K, recall@K and precision@K, and of the "
        f"highest scores {_TOP_EXAMPLES}"
    )


def metric_of(name: str, values: Mapping[str, float], split: str = "valid") -> float:
    """Return a metric. Raises RecipeError, naming what there is, where it is not measured."""
    if name not in values:
        metrics = ", ".join(f"{split}/{one}" for one in values)
        raise RecipeError(f"tracking.gate_metric={split}/{name} is not measured; there are {metrics or 'no metrics'}")
    return values[name]


def _refuse_rows(metric: str) -> None:
    kind, _, rows = metric.partition("@")
    if kind in ("precision", "recall", "lift"):
        raise ValueError(
            f"{readable(metric, 60)!r}: {readable(rows, 30)!r} is neither a number of rows from 1 on (100) nor a share "
            "below 100 % of them (1%)"
        )


def _check_rows(rows: str) -> str:
    if top_metric(f"lift@{rows}") is None:
        _refuse_rows(f"lift@{rows}")
    return rows


TopRows = Annotated[str, Field(coerce_numbers_to_str=True), AfterValidator(_check_rows)]
MetricName = Annotated[str, AfterValidator(check_metric)]
