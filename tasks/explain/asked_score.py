"""Which number of a model's outputs is explained, and what it is called."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from configs.errors import RecipeError
from configs.label_types import LabelType
from configs.matching import did_you_mean, listed
from models.base import GraphModel
from tasks.arrays import Array
from tasks.evaluators.metrics import probabilities
from tasks.kinds.judged import Deciding
from tasks.storage.graph_store import GraphStore


@dataclass(frozen=True)
class AskedScore:
    """A class's probability, or a number."""

    label_type: LabelType
    """Of the label, or of pairs."""
    columns: int
    """Of the outputs that are of this task: the first ones."""
    code: int | None
    """Class, or column of the label; None: not known yet."""
    deciding: Deciding
    """Which class is predicted, and names of classes."""

    def predicted(self, outputs: Tensor) -> AskedScore:
        """Return it with the class that is predicted of the first row (of a label of several columns the likeliest),
        where none is known yet."""
        if self.code is not None:
            return self
        row = self._rows(outputs)[:1].cpu().numpy()
        code = self.deciding.predicted(row, probabilities(row)) if self.label_type.one_of_many else row.argmax(1)
        return replace(self, code=int(code[0]) if self.label_type.has_classes else 0)

    def value(self, outputs: Tensor) -> Tensor:
        """Return what predictions say, float64 (n,), of outputs (n, C) or (n,): a probability, a number or a score."""
        margin = self.margin(outputs)
        return margin.sigmoid() if self.label_type.has_classes else margin

    def margin(self, outputs: Tensor) -> Tensor:
        """Return the same before it is squeezed between 0 and 1: the logarithm of the odds."""
        rows = self._rows(outputs)
        assert self.code is not None, "of several classes one is chosen first"
        own = rows[:, self.code]
        if not self.label_type.has_classes or not self.label_type.one_column or rows.shape[1] == 1:
            return own
        others = torch.arange(rows.shape[1], device=rows.device) != self.code
        return own - rows[:, others].logsumexp(1)  # of probabilities, those near 0 and 1 would have no gradient

    def scores(self, outputs: Tensor) -> Array:
        """Return `value` and, beside it, `margin` of outputs: float64 (n, 2); the latter NaN where there is no odds."""
        margin = self.margin(outputs) if self.label_type.has_classes else torch.nan * self.value(outputs)
        return torch.stack([self.value(outputs), margin], 1).cpu().numpy()

    def _rows(self, outputs: Tensor) -> Tensor:
        return outputs.double().view(len(outputs), -1)[:, : self.columns]

    def said(self) -> str:
        """Say what the score is."""
        if not self.label_type.has_classes:
            return "prediction" if self.label_type.is_number else "score"
        code, classes = (self.code or 0) if self.columns > 1 else 1, self.deciding.classes
        return f"probability of {classes[code] if classes and code < len(classes) else code}"


def asked_score(store: GraphStore, model: GraphModel, deciding: Deciding | None, of_class: str | None) -> AskedScore:
    """Return the score of a class by its name or number, None: of the predicted. RecipeError: there is none such.

    Of several tasks it is that of the first.
    """
    heads, facts = store.manifest.heads, model.facts
    columns = facts.head_scores[0] if heads else facts.out_dim
    label_type, deciding = heads[0].label_type if heads else store.manifest.label_type, deciding or Deciding()
    asked = AskedScore(label_type, columns, None, deciding)
    if of_class is None:
        return asked
    names = deciding.classes if deciding.classes and columns > 1 else [str(number) for number in range(columns)]
    if of_class not in names:
        raise RecipeError(f"--class: no class {of_class!r}{did_you_mean(of_class, names)}; there are {listed(names)}")
    return replace(asked, code=names.index(of_class))
