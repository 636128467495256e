"""Versions of registered models that nobody names any more: removed with their MLflow runs and files."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from tasks.publish.gate.history import TAG, champion_before, happened, read_history
from tasks.publish.gate.rules import CHAMPION
from tasks.publish.tracking.mlflow_store import Tracker
from tasks.publish.tracking.registered import model_versions
from tasks.publish.tracking.registry import open_tracker
from tasks.publish.tracking.store_uris import local_path
from tasks.publish.tracking.version_tags import ModelVersion
from tasks.storage.home import Home


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
