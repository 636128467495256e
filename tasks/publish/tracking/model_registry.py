"""The model registry: versions of a name, and which of them is champion."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.errors import RecipeError
from tasks.processes import ending
from tasks.processes.run_context import current_run
from tasks.publish.gate.rules import (
    CHAMPION,
    TAG,
    Decision,
    Move,
    MoveReason,
    champion_before,
    happened,
    read_history,
    with_move,
)
from tasks.publish.tracking.mlflow_registry import named
from tasks.publish.tracking.mlflow_store import Tracker
from tasks.publish.tracking.registered import model_versions
from tasks.publish.tracking.registry import open_tracker
from tasks.publish.tracking.store_uris import local_path
from tasks.publish.tracking.version_tags import ModelVersion
from tasks.storage.artifacts import file_lock
from tasks.storage.file_names import file_name
from tasks.storage.home import Home

_MAX_CHARACTERS = 4900  # of a tag's value; MLflow's column holds 5,000


@dataclass(frozen=True)
class Change:
    """What became of the champion's alias."""

    before: str | None
    """Version that was champion; None: there was none."""
    after: str
    """Version that is champion now."""
    reason: str

    @property
    def changed(self) -> bool:
        """Whether the alias moved."""
        return self.before != self.after


class ModelRegistry:
    """Versions of one registered model, through a tracker's connection."""

    def __init__(self, tracker: Tracker, name: str) -> None:
        """The name is made if there is none. Raises StageError if the registry cannot be reached."""
        self.tracker = tracker
        self.name = name
        self._client = tracker.client
        with file_lock(self._lock_path):
            if not tracker.call(self._client.search_registered_models, named(name)):
                tracker.call(self._client.create_registered_model, name)

    def publish(
        self,
        model_id: str,
        tags: dict[str, str],
        description: str,
        judge: Callable[[str, str | None], Decision],
        prepare: Callable[[str, Decision], None] = lambda version, decision: None,
    ) -> tuple[str, Decision]:
        """Register a logged model (once), and make it champion if the gate says so; return version and decision.

        `judge` decides on a version, given the champion's (None: there is none). It may take its time, for nothing is
        locked meanwhile, and may be called again: two publications at once must not both beat the same champion.
        `prepare` does all that is to be done of a decision before the alias moves, which is the last step.
        """
        with file_lock(self._lock_path):
            version = self._version(model_id, tags, description)
        while True:
            champion = self.champion_version()
            decision = judge(version, champion)
            prepare(version, decision)
            if self._settle(version, champion, decision):
                return version, decision

    def _settle(self, version: str, champion: str | None, decision: Decision) -> bool:
        """Write a decision down and carry it out; False where the champion has changed since it was made."""
        with file_lock(self._lock_path):
            if self.champion_version() != champion:
                return False
            tags = {
                "graphmill.gate": "champion" if decision.promote else "not champion",
                "graphmill.gate_short": decision.short,
                "graphmill.gate_reason": decision.reason[:_MAX_CHARACTERS],
            }
            for key, value in tags.items():
                self.tracker.call(self._client.set_model_version_tag, self.name, version, key, value)
            if decision.promote and champion != version:
                note = current_run().note_champion
                # Killed in between, the record says that it does not know, and the next run asks.
                with ending.held_back():
                    reference = f"{self.name}@{version}"
                    hint = f"graphmill versions {self.name} says whether it did"
                    note(f"{self.name} version {version} was about to become champion ({hint})", reference)
                    self._move(champion, version, "gate")
                    note(f"{self.name} version {version}: champion, {decision.reason}", "")
        return True

    def promote(self, version: str, note: str = "") -> Change:
        """Make a version (one that there is) champion by hand; one that is champion stays. `note` joins the reason."""
        with file_lock(self._lock_path):
            before = self.champion_version()
            if before == version:
                return Change(before, version, "it is champion already")
            self._move(before, version, "promote")
        return Change(before, version, f"promoted by hand{note}")

    def roll_back(self) -> Change:
        """Give the alias back to the champion before. Once: after a rollback the next one changes nothing.

        Raises RecipeError: there is no champion, it is not known which version was champion before, or that is gone.
        """
        with file_lock(self._lock_path):
            history, champion = self.history(), self.champion_version()
            if champion is None:
                raise RecipeError(f"{self.name} has no champion; choose one: graphmill promote {self.name}@VERSION")
            if history and history[-1].how == "rollback" and history[-1].version == champion:
                reason = f"the last change was taken back already; to go further: graphmill promote {self.name}@VERSION"
                return Change(champion, champion, reason)
            earlier = champion_before(history, champion)
            versions = self.tracker.call(self._client.search_model_versions, named(self.name))
            if earlier not in {str(one.version) for one in versions}:
                why = f"version {earlier} was deleted" if earlier else "there was no champion before, or none is known"
                raise RecipeError(f"{self.name}: {why}; choose a version: graphmill promote {self.name}@VERSION")
            assert earlier is not None
            self._move(champion, earlier, "rollback")
        return Change(champion, earlier, f"version {champion} was taken back")

    def history(self) -> list[Move]:
        """Return the moves of the champion's alias that are known, oldest first."""
        return read_history(self.tracker.call(self._client.get_registered_model, self.name).tags.get(TAG))

    def champion_version(self) -> str | None:
        """Return the version that is champion, or None."""
        aliases = self.tracker.call(self._client.get_registered_model, self.name).aliases
        return str(aliases[CHAMPION]) if CHAMPION in aliases else None

    def _move(self, before: str | None, after: str, how: MoveReason) -> None:
        """Write the move down, then make it: if killed in between, `champion_before` sees that it never happened."""
        text = with_move(happened(self.history(), before), after, before, how)
        self.tracker.call(self._client.set_registered_model_tag, self.name, TAG, text)
        self.tracker.call(self._client.set_registered_model_alias, self.name, CHAMPION, after)

    def _version(self, model_id: str, tags: dict[str, str], description: str) -> str:
        """Return the version of a logged model, made if it has none; its tags are renewed."""
        call, source = self.tracker.call, f"models:/{model_id}"
        for registered in call(self._client.search_model_versions, f"{named(self.name)} and source_path = '{source}'"):
            for key, value in tags.items():
                call(self._client.set_model_version_tag, self.name, registered.version, key, value)
            return str(registered.version)
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
        return self.tracker.home.locks / f"registry-{file_name(self.name)}.lock"


def remove_old_versions(
    home: Home, keep: int, limit: float, in_use: Collection[str], *, dry_run: bool
) -> Iterator[tuple[str, int]]:
    """Remove (or only find) old versions; yields `NAME@VERSION` and the bytes of its files on this machine.

    The newest `keep` of each model stay, what an alias names, the champion before the present one, what was made after
    `limit` (seconds since 1970), and `in_use`. An MLflow run goes with the last of its versions. Raises StageError.
    """
    tracker = open_tracker(home)
    for name in tracker.model_names():
        versions = model_versions(tracker, name)
        champion = tracker.aliases(name).get(CHAMPION)
        moves = happened(read_history(tracker.model_tags(name).get(TAG)), champion)
        before = None if champion is None else champion_before(moves, champion)
        spared = {before, *(one.version for one in versions if one.aliases or one.reference in in_use)}
        old = [one for one in versions[keep:] if one.version not in spared and one.created_ms / 1000 < limit]
        runs = Counter(one.run_id for one in versions)
        for one in old:
            runs[one.run_id] -= 1
            yield one.reference, _remove(tracker, one, with_run=not runs[one.run_id], dry_run=dry_run)


def _remove(tracker: Tracker, version: ModelVersion, *, with_run: bool, dry_run: bool) -> int:
    call, client = tracker.call, tracker.client
    run = call(client.get_run, version.run_id) if version.run_id and with_run else None
    model = call(client.get_logged_model, version.model_id) if version.model_id else None
    places = [str(one) for one in (model and model.artifact_location, run and run.info.artifact_uri) if one]
    folders = [folder for folder in map(local_path, places) if folder is not None and folder.is_dir()]
    size = sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())
    if dry_run:
        return size
    # The version first: what is left of it if this is killed is found by nobody, and is no version without files.
    call(client.delete_model_version, version.name, version.version)
    if model is not None:
        call(client.delete_logged_model, version.model_id)
    if run is not None:
        call(client.delete_run, version.run_id)
        store: Any = client._tracking_client.store
        if hasattr(store, "_hard_delete_run"):  # a database here; a server's own `mlflow gc` does it there
            store._hard_delete_run(version.run_id)
    roots = [folder.resolve() for folder in tracker.own_folders()]
    for folder in folders:
        if any(folder.is_relative_to(root) for root in roots):
            shutil.rmtree(folder, ignore_errors=True)
    return size
