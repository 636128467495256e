"""What a report tells of recommendations beside the metrics."""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks.evaluators.ranked import hits, precision, recall
from tasks.evaluators.ranked_rows import Lists, RankedRows

_LENGTHS = (1, 3, 5, 10, 20, 50, 100)


def list_length(metric: str) -> int:
    """Return how many places of each list are written: K of the metric that judges, 10 of MRR."""
    _, _, k = metric.partition("@")
    return int(k) if k else 10


def diagnose_ranked(rows: RankedRows) -> dict[str, Any]:
    """Return `lengths`: recall, precision and hits by how long the lists are; where the best right one is; how many."""
    measures = {"recall": recall, "precision": precision, "hits": hits}
    return {
        "lengths": [
            {"k": k} | {name: float(measure(rows, k).mean()) for name, measure in measures.items()} for k in _LENGTHS
        ],
        "median_place": float(np.median(rows.places[:, 0])),
        "right": float(rows.counts.mean()),
    }


def recommended(lists: Lists, num_candidates: int) -> dict[str, Any]:
    """Return how many candidates stand in some list, and the share of all places that the 10 most frequent have."""
    found, counts = np.unique(lists.candidates[lists.candidates >= 0], return_counts=True)
    most = np.sort(counts)[::-1][:10].sum() / max(1, counts.sum())
    return {"recommended": len(found), "candidates": num_candidates, "share_of_ten": float(most)}
