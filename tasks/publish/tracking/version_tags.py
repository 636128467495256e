"""A model version as the registry has it, and what the gate knows of it, which its tags say."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from tasks.publish.gate.rules import Candidate

_MODEL_SOURCE = re.compile(r"models:/m-[0-9a-f]+")


@dataclass(frozen=True)
class ModelVersion:
    """A version of a registered model, as the registry has it."""

    name: str
    version: str
    source: str
    """Where the registry has it from, as the registry says."""
    run_id: str
    """MLflow run of its training."""
    created_ms: int
    tags: dict[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        """`NAME@VERSION`."""
        return f"{self.name}@{self.version}"

    @property
    def model_id(self) -> str:
        """Id that MLflow gave the logged model; empty where the source names none."""
        return self.source.removeprefix("models:/") if _MODEL_SOURCE.fullmatch(self.source) else ""

    @property
    def gate(self) -> Candidate:
        """What the gate compares it by (see `gate_tags`); a version without a metric cannot be compared."""
        tags = self.tags
        try:
            value = float(tags.get("graphmill.gate_value") or "nan")
        except ValueError:
            value = float("nan")
        try:
            recorded = json.loads(tags.get("graphmill.gate_controls") or "{}").items()
            controls = {str(name): float(bar) for name, bar in recorded}
        except (ValueError, TypeError, AttributeError):
            controls = {}
        return Candidate(
            self.version,
            metric=tags.get("graphmill.gate_metric", ""),
            value=value,
            higher_is_better=tags.get("graphmill.gate_higher_is_better", "true") == "true",
            dataset=tags.get("graphmill.dataset", ""),
            prepared=tags.get("graphmill.gate_data", ""),
            controls=controls,
            promoted_because=self.reason if tags.get("graphmill.gate") == "champion" else "",
            as_of=tags.get("graphmill.as_of", ""),
            control=tags.get("graphmill.control", ""),
        )

    @property
    def recipe(self) -> str:
        """Name of the recipe that it was trained by."""
        return self.tags.get("graphmill.recipe", "")

    @property
    def decision(self) -> str:
        """What the gate decided, in a few words."""
        return self.tags.get("graphmill.gate_short", "")

    @property
    def reason(self) -> str:
        """The same at length."""
        return self.tags.get("graphmill.gate_reason", "")


def gate_tags(candidate: Candidate) -> dict[str, str]:
    """Return the tags by which a version is compared later."""
    moment = {"graphmill.as_of": candidate.as_of} if candidate.as_of else {}
    moment |= {"graphmill.control": candidate.control} if candidate.control else {}
    return {
        **moment,
        "graphmill.gate_metric": candidate.metric,
        "graphmill.gate_value": repr(candidate.value),
        "graphmill.gate_higher_is_better": str(candidate.higher_is_better).lower(),
        "graphmill.dataset": candidate.dataset,
        "graphmill.gate_data": candidate.prepared,
        "graphmill.gate_controls": json.dumps(dict(candidate.controls)),
    }
