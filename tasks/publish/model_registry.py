"""The model registry: versions of a name, and which of them is champion."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tasks.artifacts import file_lock
from tasks.publish.gate import CHAMPION, Candidate, Decision, decide
from tasks.publish.tracking import Tracker


class ModelRegistry:
    """Versions of one registered model, through a tracker's connection."""

    def __init__(self, tracker: Tracker, name: str) -> None:
        """The name is made if there is none. Raises StageError if the registry cannot be reached."""
        self.tracker = tracker
        self.name = name
        self._client = tracker.client
        with file_lock(self._lock_path):
            if not tracker.call(self._client.search_registered_models, f"name = '{name}'"):
                tracker.call(self._client.create_registered_model, name)

    def publish(
        self, model_id: str, candidate: Candidate, tags: dict[str, str], description: str
    ) -> tuple[str, Decision]:
        """Register a logged model (once) and move the champion's alias if the gate says so.

        Args:
            candidate: what the gate compares; its `version` is filled in here.

        Returns:
            The version, and the decision with its reason.
        """
        with file_lock(self._lock_path):  # two publications at once must not both beat the same champion
            version = self._version(model_id, {**tags, **gate_tags(candidate)}, description)
            decision = decide(replace(candidate, version=version), self.champion())
            if decision.promote:
                self.tracker.call(self._client.set_registered_model_alias, self.name, CHAMPION, version)
        return version, decision

    def champion(self) -> Candidate | None:
        """Return the present champion, or None. One that was set by hand and has no gate metric cannot be compared."""
        aliases = self.tracker.call(self._client.get_registered_model, self.name).aliases
        if CHAMPION not in aliases:
            return None
        version = self.tracker.call(self._client.get_model_version, self.name, str(aliases[CHAMPION]))
        return candidate_of(str(version.version), version.tags)

    def _version(self, model_id: str, tags: dict[str, str], description: str) -> str:
        """Return the version of a logged model, made if it has none; its tags are renewed."""
        call, source = self.tracker.call, f"models:/{model_id}"
        for known in call(
            self._client.search_model_versions, f"name = '{self.name}' and run_id = '{self.tracker.run_id}'"
        ):
            if known.source == source:
                for key, value in tags.items():
                    call(self._client.set_model_version_tag, self.name, known.version, key, value)
                return str(known.version)
        with self.tracker.as_global():
            made = call(
                self._client.create_model_version,
                self.name,
                source,
                self.tracker.run_id,
                tags,
                description=description,
                model_id=model_id,
            )
        return str(made.version)

    @property
    def _lock_path(self) -> Path:
        return self.tracker.home.locks / f"registry-{self.name}.lock"


def candidate_of(version: str, tags: dict[str, str]) -> Candidate:
    """Read a version's gate tags (see `gate_tags`)."""
    try:
        value = float(tags.get("graphmill.gate_value", "nan"))
    except ValueError:
        value = float("nan")
    higher = tags.get("graphmill.gate_higher_is_better", "true") == "true"
    return Candidate(version, tags.get("graphmill.gate_metric", ""), value, higher, tags.get("graphmill.dataset", ""))


def gate_tags(candidate: Candidate) -> dict[str, str]:
    """Return the tags by which a version is compared later."""
    return {
        "graphmill.gate_metric": candidate.metric,
        "graphmill.gate_value": repr(candidate.value),
        "graphmill.gate_higher_is_better": str(candidate.higher_is_better).lower(),
        "graphmill.dataset": candidate.dataset,
    }
