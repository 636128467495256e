"""Whether data is what a model and a recipe can expect: rows of each table, age of the newest, drift.

It is compared with the profile of the champion's data (`profile.py`); what is far from that is warned of, and what the
recipe's `expect` says ends the run before anything is trained or predicted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from configs.errors import DataError, GraphmillError, RecipeError
from configs.matching import did_you_mean, listed
from configs.moments import TimeUnit, last_time
from configs.schema import Recipe
from configs.values.expectations import age_seconds, bounds_of
from tasks.publish import profile
from tasks.publish.gate.rules import CHAMPION
from tasks.publish.snapshots import SnapshotSummary, date_text
from tasks.publish.tracking.registered import fetch_model, find_version
from tasks.publish.tracking.registry import open_registry
from tasks.stage import Parent
from tasks.storage.dataset_store import DatasetStore, to_numpy
from tasks.storage.home import Home
from tasks.storage.manifests import DatasetManifest
from tasks.storage.snapshots import time_unit
from tasks.storage.stored import read_json

_FEWEST, _MOST = 0.9, 2.0
"""Of a table's rows: what is beyond is warned of."""
_OTHER_POPULATION = 0.25
_SHOWN = 3
Say = Callable[[str], None]


@dataclass(frozen=True)
class Reference:
    """A published model whose data others are compared with."""

    name: str
    """`NAME@VERSION`."""
    folder: Path
    """Its files."""

    @property
    def profile(self) -> SnapshotSummary | None:
        """What its data was like; None where that cannot be read."""
        return profile.read(self.folder)

    def was_made_of(self, parent: Parent) -> bool:
        """Whether it was trained on this very artifact."""
        try:
            lineage = read_json(self.folder / "lineage.json")
            return bool(lineage[parent.manifest.stage]["digest"] == parent.manifest.digest)
        except (OSError, GraphmillError, KeyError, TypeError):
            return False


def champion_of(recipe: Recipe, home: Home) -> Reference | None:
    """Return the champion of a recipe's model; None where there is none yet.

    Raises StageError: the registry cannot be reached.
    """
    name = recipe.tracking.model_name or recipe.name
    try:
        registry = open_registry(home)
        version = find_version(registry, f"{name}@{CHAMPION}")
        return Reference(version.reference, fetch_model(registry, version))
    except RecipeError:  # nothing is registered, or nobody is champion
        return None


def check_arrival(recipe: Recipe, ingest: Parent, reference: Reference | None, say: Say, warn: Say) -> None:
    """Compare the rows of ingested tables with a model's, and the newest with the clock.

    Raises DataError: there are fewer or more than the recipe expects, or they are older; RecipeError: `expect` names a
    table that the data has not, or ages of data without dates.
    """
    manifest: DatasetManifest = ingest.manifest
    counts = profile.table_rows(manifest)
    for option, values in (("rows", recipe.expect.rows), ("newest", recipe.expect.newest)):
        for table in values if isinstance(values, Mapping) else ():
            if table not in counts:
                raise RecipeError(
                    f"expect.{option}: there is no table {table!r}{did_you_mean(table, counts)}; types of nodes and "
                    f"edges are {listed(list(counts))}"
                )
    _check_ages(recipe, DatasetStore(ingest.folder, manifest), say)
    before = None if reference is None else reference.profile
    same = reference is not None and reference.was_made_of(ingest)
    if reference is not None and before is None and not same:
        warn(f"the profile of {reference.name} cannot be read: this data cannot be compared with its training data")
    _check_counts(recipe, counts, before, "" if reference is None else reference.name, None if same else warn)


def _check_counts(
    recipe: Recipe, counts: Mapping[str, int], before: SnapshotSummary | None, name: str, warn: Say | None
) -> None:
    """Hold rows against what is expected; `warn` of what nobody expects, None: not."""
    rows = recipe.expect.rows
    for table, count in counts.items():
        was = None if before is None else before["tables"].get(table)
        beside = "" if not was else f", {100 * count / was:.1f} % of the {was:,} that {name} was trained on"
        expected = rows.get(table) if isinstance(rows, Mapping) else rows
        for sign, number, is_share in bounds_of(expected) if expected is not None else ():
            if is_share and not was:
                continue
            bound = number / 100 * (was or 0) if is_share else number
            if count < bound if sign == ">=" else count > bound:
                raise DataError(
                    f"{table} has {count:,} rows{beside}; the recipe expects {expected} (expect.rows). Mend the data, "
                    "or where it is right, change what is expected"
                )
        if warn is not None and was and not _FEWEST * was <= count <= _MOST * was:
            warn(f"{table} has {count:,} rows{beside}")
    lost = {} if before is None else {table: was for table, was in before["tables"].items() if table not in counts}
    for table, was in lost.items():
        if warn is not None and was:
            warn(f"{table} is not there; {name} was trained on {was:,} rows of it")


def _check_ages(recipe: Recipe, store: DatasetStore, say: Say) -> None:
    expected = recipe.expect.newest
    tables = {
        name.partition("/")[2]: name
        for name, table in store.manifest.tables.items()
        if name.partition("/")[0] in ("nodes", "edges") and "time" in table.columns
    }
    unit: TimeUnit | None = None
    with suppress(RecipeError):
        unit = time_unit(recipe) if tables else None
    if unit not in ("seconds", "milliseconds"):
        if expected is not None:
            raise RecipeError(
                "expect.newest needs times that are dates or time stamps, and the data has none; name their columns "
                "(dataset.nodes.time, dataset.edges.time), or leave it out"
            )
        return
    scale = 1 if unit == "seconds" else 1000
    now = time.time()
    if recipe.time_moment is not None:
        now = min(now, last_time(recipe.time_moment, unit) / scale)
    limit = int(now * scale) if recipe.time_moment is not None else None
    newest = {name: last for name, table in tables.items() if (last := _newest(store, table, limit)) is not None}
    ages = {name: now - last / scale for name, last in newest.items()}
    for name in expected if isinstance(expected, Mapping) else ():
        if name not in ages:
            raise RecipeError(f"expect.newest: {name} has no times; there are some in {listed(list(ages)) or 'none'}")
    if not ages:
        return
    order = sorted(ages, key=ages.__getitem__)
    said = {}
    for name in order:  # the age in its largest unit
        seconds = abs(ages[name])
        word, size = ("day", 86400) if seconds >= 86400 else ("hour", 3600) if seconds >= 3600 else ("minute", 60)
        count = int(seconds // size)
        age = f"{count:,} {word}{'' if count == 1 else 's'} {'ahead' if ages[name] < 0 else 'old'}"
        said[name] = f"{date_text(newest[name] / scale) or newest[name]}, {age}"
    say("newest row: " + "; ".join(f"{name} {said[name]}" for name in order[:_SHOWN]))
    limits = expected if isinstance(expected, Mapping) else {order[0]: expected} if expected is not None else {}
    for name, text in limits.items():
        if ages[name] > age_seconds(text):
            raise DataError(
                f"the newest row of {name} is of {said[name]}; the recipe expects none older than {text} "
                "(expect.newest)"
            )


def _newest(store: DatasetStore, table: str, limit: int | None) -> int | None:
    """Return the latest time of a table, of those that are not after a limit."""
    newest: int | None = None
    for _, group in store.row_groups(table, ["time"]):
        values = to_numpy(group.column("time"))
        values = values if limit is None else values[values <= limit]
        if len(values):
            newest = max(int(values.max()), newest if newest is not None else int(values.max()))
    return newest


def check_drift(
    recipe: Recipe, parents: Mapping[str, Parent], reference: Reference | None, say: Say, warn: Say
) -> None:
    """Compare prepared data with a model's: features, labels, degrees.

    `parents` has `ingest`, `preprocess` and `partition`. Raises DataError: something has moved further than the recipe
    allows.
    """
    before = None if reference is None else reference.profile
    if reference is None or before is None or reference.was_made_of(parents["partition"]):
        return
    compared = profile.compare(before, profile.of_data(recipe, parents))
    say(profile.text(compared).replace("the champion's", f"that of {reference.name}"))
    drift, limit = compared["drift"], recipe.expect.drift
    moved = {name: one["psi"] for name, one in drift["features"].items()}
    moved |= {name: drift[name]["psi"] for name in ("labels", "degrees") if drift[name]}
    bound = _OTHER_POPULATION if limit is None else limit
    far = sorted((name for name, index in moved.items() if index > bound), key=lambda name: -moved[name])
    if not far:
        return
    named = listed([f"{name} {moved[name]:.3f}" for name in far], _SHOWN)
    text = f"the data is another population than that of {reference.name}, by stability index: {named}"
    if limit is not None:
        raise DataError(f"{text}; the recipe expects {limit:g} at most (expect.drift)")
    warn(text)
