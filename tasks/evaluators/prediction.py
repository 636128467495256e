"""What a model says about a split, in the shapes that metrics need.

Scores are raw outputs of the model (logits, edge scores, values of a regression), never probabilities: a binary label
is predicted as 1 where its logit is above 0. Which reading applies is seen from the label:

| label | scores | what |
|---|---|---|
| int64 (n,), -1: none | (n, C) | class index; prediction: the highest score |
| float (n, T), NaN: none | (n, T) | T binary labels, or T values of a regression |

A model may know classes that the data has not (`Prediction.num_classes`): guessing one is wrong, and that is all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from configs.errors import DataError
from tasks.evaluators.metrics import Array, Floats
from tasks.evaluators.ranked_rows import RankedRows
from tasks.ranking.ranks import TripleRanks, check_finite


@dataclass(frozen=True)
class Prediction:
    """What a model says about one split.

    Node and graph tasks: `scores` (n, C) float32 and `label` (n,) or (n, T).
    Link tasks: `positive` (n,) and `negative`, (m,) as one pool or (n, K) as K for each positive.
    Triple tasks: `ranks` of the true entities, those of tails and those of heads.
    Rankings: `ranked`.
    """

    scores: Array | None = None
    label: Array | None = None
    positive: Array | None = None
    negative: Array | None = None
    ranks: TripleRanks | None = None
    relations: tuple[Array, Array] | None = None
    """Relations of the positive pairs (n,) and of the negative ones (m,), where links are predicted by relation."""
    negative_kinds: tuple[str, ...] = ()
    """Kinds of negatives, (n, K), as many of one as of another, where there are several."""
    num_classes: int | None = None
    """Classes of the data, where scores of others may stand behind theirs; None: all are the data's."""
    positive_code: int | None = None
    """Code of the class that is looked for, where it goes by more rows than these; None: by these."""
    ranked: RankedRows | None = None
    """Of a ranking: where what is right stands in each row's list."""

    @property
    def ranks_each_edge(self) -> bool:
        """Whether each edge is ranked among negatives of its own, of one kind and in one relation."""
        has_own = self.negative is not None and self.negative.ndim == 2
        return has_own and self.relations is None and not self.negative_kinds

    def pairs(self) -> tuple[Floats, Floats]:
        """Scores of positive and negative edges. Raises RecipeError if training diverged."""
        if self.positive is None or self.negative is None:
            raise DataError("this metric ranks edges: it needs scores of positive and of negative edges")
        if not len(self.positive) or not self.negative.size:
            raise DataError("the split has no positive or no negative edges; there is nothing to rank")
        return finite(self.positive), finite(self.negative)

    def groups(self, relations: Sequence[int] = ()) -> list[Prediction]:
        """Return the parts whose mean a metric is: relations, or kinds of negatives; one where there are none.

        `relations`: those that count; empty: all.
        """
        if self.relations is not None:
            return [group for relation, group in self.by_relation() if not relations or relation in relations]
        return [group for _, group in self.by_kind()] or [self]

    def by_kind(self) -> Iterator[tuple[str, Prediction]]:
        """Yield each kind of negatives, and all edges with their negatives of that kind."""
        assert self.negative is not None or not self.negative_kinds
        for number, kind in enumerate(self.negative_kinds):
            assert self.negative is not None
            width = self.negative.shape[1] // len(self.negative_kinds)
            negative = np.ascontiguousarray(self.negative[:, number * width : (number + 1) * width])
            yield kind, Prediction(positive=self.positive, negative=negative)

    def by_relation(self) -> Iterator[tuple[int, Prediction]]:
        """Yield each relation that has positive and negative pairs, and what is said of those."""
        assert self.relations is not None
        assert self.positive is not None
        assert self.negative is not None
        true, false = self.relations
        for relation in np.intersect1d(true, false).tolist():
            pairs = self.positive[true == relation], self.negative[false == relation]
            yield relation, Prediction(positive=pairs[0], negative=pairs[1])

    def true_ranks(self) -> TripleRanks:
        """Ranks of true entities, at least one."""
        if self.ranks is None:
            raise DataError("this metric needs the ranks of triples' true entities")
        if not len(self.ranks.better):
            raise DataError("the split has no triples; there is nothing to rank")
        return self.ranks

    def classes(self) -> tuple[Array, Array]:
        """True and predicted class index of labelled rows, (n,) int64 each."""
        label, scores = self._labelled()
        return label.astype(np.int64), scores.argmax(axis=1)

    def columns(self) -> tuple[Array, Floats]:
        """Labels (n, T) float64 with NaN for missing, and scores (n, T); classes become one column each (one vs rest).

        A single-label problem of two classes becomes one column. Classes that are none of the data's are left out.
        """
        label, scores = self._labelled()
        if label.ndim == 1 and self.num_classes is not None:
            scores = scores[:, : self.num_classes]
        if label.ndim == 1 and scores.shape[1] > 2:
            one_hot = (label[:, None] == np.arange(scores.shape[1])).astype(np.float64)
            shifted = scores.astype(np.float64) - scores.max(axis=1, keepdims=True)
            return one_hot, shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        if label.ndim == 1 and scores.shape[1] == 2:
            scores = scores[:, 1:] - scores[:, :1]
        label = label.reshape(len(label), -1).astype(np.float64)
        if label.shape != scores.shape:
            raise DataError(f"labels of shape {label.shape} do not fit scores of shape {scores.shape}")
        return label, scores

    @property
    def has_pool(self) -> bool:
        """Whether all positive pairs share the negatives."""
        return self.negative is not None and self.negative.ndim == 1

    def taken(self, rows: Array) -> Prediction:
        """Return some rows, int64 (m,) or bool (n,); what was looked for in all is looked for in them."""
        names = ["scores", "label", "positive"] + ([] if self.has_pool else ["negative"])
        taken = {name: values[rows] for name in names if (values := getattr(self, name)) is not None}
        if self.ranks is not None:
            taken["ranks"] = self.ranks.taken(rows)
        if self.relations is not None:
            taken["relations"] = self.relations[0][rows], self.relations[1]
        if self.ranked is not None:
            taken["ranked"] = self.ranked.taken(rows)
        return replace(self, **taken, positive_code=self.positive_class)

    @property
    def single_label(self) -> bool:
        """Whether a row has one class out of many (against several independent columns)."""
        return self.label is not None and self.label.ndim == 1

    @property
    def positive_class(self) -> int:
        """Code of the class that is looked for: 1, and of two classes of equal standing the rarer one."""
        if self.positive_code is not None:
            return self.positive_code
        if self.label is None or self.scores is None or not self.single_label:
            return 1
        return int(np.count_nonzero(self.label == 1) <= np.count_nonzero(self.label >= 0) / 2)

    def looked_for(self) -> tuple[Array, Floats]:
        """Return `columns`, of two classes of equal standing those of the rarer one."""
        label, score = self.columns()
        return (1 - label, -score) if label.shape[1] == 1 and not self.positive_class else (label, score)

    @property
    def telling_rows(self) -> int:
        """How many rows a metric's noise goes by: labelled or ranked ones, or the rarer of positives and negatives."""
        if self.ranks is not None:
            return len(self.ranks)
        if self.ranked is not None:
            return len(self.ranked)
        if self.positive is not None and self.negative is not None:
            return int(min(self.positive.size, self.negative.size))
        label, scores = self._labelled()
        if label.ndim == 1 and scores.shape[1] > 2:
            return len(label)
        kinds = [int((label == kind).sum()) for kind in (0, 1)]
        return min(kinds) if sum(kinds) == int((label >= 0).sum()) and all(kinds) else len(label)

    def _labelled(self) -> tuple[Array, Floats]:
        if self.scores is None or self.label is None:
            raise DataError("this metric compares labels: it needs scores and labels of nodes or graphs")
        label, scores = self.label, finite(self.scores)
        if scores.ndim == 1:
            scores = scores[:, None]
        if len(label) != len(scores):
            raise DataError(f"{len(label)} labels do not fit {len(scores)} rows of scores")
        if label.ndim == 1 and np.issubdtype(label.dtype, np.floating) and scores.shape[1] == 1:
            label = label[:, None]
        labelled = (label >= 0) if label.ndim == 1 else ~np.isnan(label).all(axis=1)
        if not labelled.any():
            raise DataError("the split holds no labelled row; check the dataset's labels and splits")
        return (label, scores) if labelled.all() else (label[labelled], scores[labelled])


def finite(scores: Array) -> Floats:
    """Return the scores. Raises RecipeError if some are NaN or infinite: no metric means anything then."""
    check_finite(scores.size - int(np.isfinite(scores).sum()), scores.size)
    return scores
