"""A model version as the registry has it, and what the gate knows of it, which its tags say."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from tasks.publish.gate.rules import Candidate, Decision

_MAX_CHARACTERS = 4900  # of a tag's value; MLflow's column holds 5,000


@dataclass(frozen=True)
class StoredVersion:
    """A version as the registry has it."""

    name: str
    version: str
    source: str
    run_id: str
    created_ms: int
    tags: dict[str, str] = field(default_factory=dict)


def candidate_of(version: str, tags: dict[str, str]) -> Candidate:
    """Read a version's tags (see `gate_tags` and `decision_tags`); one without a metric cannot be compared."""
    return Candidate(
        version,
        metric=tags.get("graphmill.gate_metric", ""),
        value=_number(tags.get("graphmill.gate_value")),
        higher_is_better=tags.get("graphmill.gate_higher_is_better", "true") == "true",
        dataset=tags.get("graphmill.dataset", ""),
        prepared=tags.get("graphmill.gate_data", ""),
        controls=_numbers(tags.get("graphmill.gate_controls")),
        promoted_because=tags.get("graphmill.gate_reason", "") if tags.get("graphmill.gate") == "champion" else "",
        as_of=tags.get("graphmill.as_of", ""),
        control=tags.get("graphmill.control", ""),
    )


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


def decision_tags(decision: Decision) -> dict[str, str]:
    """Return the tags that say what the gate decided on a version, and why."""
    return {
        "graphmill.gate": "champion" if decision.promote else "not champion",
        "graphmill.gate_short": decision.short,
        "graphmill.gate_reason": decision.reason[:_MAX_CHARACTERS],
    }


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")


def _numbers(text: str | None) -> dict[str, float]:
    try:
        return {str(name): float(value) for name, value in json.loads(text or "{}").items()}
    except (ValueError, TypeError, AttributeError):
        return {}
