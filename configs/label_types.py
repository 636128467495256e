"""Types of labels: what a row's label is, and how many scores say it.

| type | label of a row | scores |
|---|---|---|
| `multiclass` | one class of several | one a class, read by softmax |
| `binary` | yes or no | one, read by the logistic function |
| `multilabel` | several times yes or no | one a column of the label |
| `regression` | numbers | one a column |

Pairs, triples and rankings have none: theirs is a type of the task's name that has neither classes nor numbers.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LabelType:
    """One of them."""

    name: str
    one_of_many: bool = False
    """Whether a row has one class of several, which exclude each other."""
    is_yes_or_no: bool = False
    is_number: bool = False
    one_column: bool = False
    """Whether there is one label a row."""

    @property
    def has_classes(self) -> bool:
        """Whether something is decided of a row, or of each column of its label."""
        return self.one_of_many or self.is_yes_or_no

    @property
    def one_decision(self) -> bool:
        """Whether one class is decided on of each row."""
        return self.has_classes and self.one_column

    def num_scores(self, num_classes: int, num_columns: int) -> int:
        """Return how many scores a model gives a row."""
        return num_classes if self.one_of_many else num_columns

    @property
    def of_a_column(self) -> LabelType:
        """That of one of several columns."""
        return label_type("binary") if self.is_yes_or_no else self


_TYPES = (
    LabelType("multiclass", one_of_many=True, one_column=True),
    LabelType("binary", is_yes_or_no=True, one_column=True),
    LabelType("multilabel", is_yes_or_no=True),
    LabelType("regression", is_number=True),
)
LABEL_TYPES = {one.name: one for one in _TYPES}


def label_type(name: str) -> LabelType:
    """Return a type by the name that manifests and recipes have; of a task without labels one of no properties."""
    return LABEL_TYPES.get(name) or LabelType(name)
