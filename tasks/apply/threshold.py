"""From which probability a class is predicted: `0.3` of a binary label, `fraud=0.3` of one of several classes."""

from __future__ import annotations

from collections.abc import Sequence

from configs.errors import RecipeError
from configs.matching import did_you_mean, listed
from tasks.kinds.judged import Threshold
from tasks.storage.manifests import TaskManifest

_FORMS = "a probability between 0 and 1, such as 0.3, or of one of several classes fraud=0.3"


def split_threshold(text: str) -> tuple[str | None, float]:
    """Return the class that is named, if any, and the probability. Raises RecipeError."""
    name, _, number = text.rpartition("=")
    try:
        probability = float(number)
    except ValueError:
        probability = float("nan")
    if not 0 < probability < 1:
        raise RecipeError(f"--threshold {text}: give {_FORMS}")
    return name.strip() or None, probability


def threshold_of(text: str, manifest: TaskManifest, names: Sequence[str] | None) -> Threshold:
    """Return the threshold of a model's classes, which may have names.

    Raises RecipeError: the model decides between no classes, or the class is not known.
    """
    name, probability = split_threshold(text)
    kind = manifest.label_type
    if not kind.has_classes:
        what = "several tasks" if manifest.heads else f"a {manifest.task_type}"
        raise RecipeError(f"--threshold is for classes, and {manifest.dataset} is {what}; leave it out")
    words = list(names or map(str, range(manifest.num_classes))) if kind.one_of_many else ["0", "1"]
    if name is None and kind.one_of_many:
        raise RecipeError(
            f"--threshold {text}: say of which class: {words[0]}={probability:g}; there are {listed(words)}"
        )
    if name is not None and name not in words:
        raise RecipeError(
            f"--threshold {text}: no class {name!r}{did_you_mean(name, words)}; there are {listed(words)}"
        )
    code = 1 if name is None else words.index(name)
    if not kind.one_of_many and code == 0:
        raise RecipeError(f"--threshold {text}: give that of class 1, of which predictions have the probability")
    return Threshold(code, probability)
