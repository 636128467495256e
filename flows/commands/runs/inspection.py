"""`graphmill inspect`: a run and its stages, or an artifact's manifest in human form, and its plots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from configs.errors import RecipeError
from configs.matching import did_you_mean
from configs.schema import STAGES
from flows.commands.recipes.plan import flatten
from flows.commands.runs.runs import find_run, run_time
from flows.records.run_record import RunRecord, all_runs
from flows.records.tables import metric_table, stage_rows
from flows.services.addresses import connect
from flows.terminal.console import format_bytes, format_seconds, out, print_facts, table
from flows.terminal.options import graphmill_command
from tasks.calls import load_stage
from tasks.storage.artifacts import ArtifactStore
from tasks.storage.home import Home
from tasks.storage.manifests import Manifest
from tasks.storage.outcomes import VECTORS, VectorsManifest, is_at_once

_LIST_SHOWN, _RECORDS_SHOWN = 8, 20
# Shown in a table or a line of their own.
_APART = {"files", "warnings", "config", "parents", "tables", "arrays", "report", "metrics", "controls", "stage", "key"}

_OF_EPOCHS = {"strategy", "seeds_per_second", "edges_per_second", "epochs_run", "best_epoch"}


@dataclass(frozen=True)
class Found:
    """An artifact."""

    manifest: Manifest
    folder: Path


def find(home: Home, words: list[str], *, deep: bool = False) -> Found | RunRecord:
    """Return an artifact by key (or its beginning), by folder, or by run and stage; a run by its id or recipe.

    Raises RecipeError: there is no such artifact or run; IntegrityError: it is damaged.
    """
    if len(words) > 2:
        raise RecipeError(
            f"give one name and one stage at most, not {' '.join(words)}; all files and folders must exist"
        )
    what, stage = words[0], words[1] if len(words) == 2 else None
    if stage is not None and stage not in STAGES:
        raise RecipeError(f"unknown stage {stage!r}{did_you_mean(stage, STAGES)}; stages: {', '.join(STAGES)}")
    folder = Path(what)
    if stage is None and (folder / "manifest.json").is_file():
        *above, name, key = folder.resolve().parts
        if name not in (*STAGES, VECTORS) or above[-1:] != ["artifacts"]:
            raise RecipeError(f"{what} is not an artifact of graphmill; artifacts are in HOME/artifacts/STAGE/KEY")
        return _load(Home(Path(*above[:-1])), name, key, deep)
    if stage is None and len(what) >= 4:
        places = [
            place for place in sorted(home.artifacts.glob("*/*")) if place.name.startswith(what.rpartition("/")[2])
        ]
        if len(places) > 1:
            names = ", ".join(f"{place.parent.name}/{place.name}" for place in places)
            raise RecipeError(f"{what!r} is the beginning of several keys: {names}")
        if places:
            return _load(home, places[0].parent.name, places[0].name, deep)
    record = find_run(home, folder.stem if what.endswith((".yaml", ".yml")) else what)
    if stage is None:
        return record
    if stage not in record.stages:
        names = ", ".join(record.stages) or "none"
        raise RecipeError(f"run {record.id[:8]} of {record.recipe} ({record.status}) has no {stage}; it has {names}")
    return _load(home, stage, record.stages[stage].key, deep)


def _load(home: Home, name: str, key: str, deep: bool) -> Found:
    store = ArtifactStore(home)
    if name not in (*STAGES, VECTORS):
        raise RecipeError(f"{name}/{key} is not an artifact of a stage")
    kind = VectorsManifest if name == VECTORS else load_stage(name).manifest
    manifest = store.load(name, key, kind, deep=deep)
    if manifest is None:
        raise RecipeError(f"the artifact {name}/{key} is no longer in {home.artifacts}; run the recipe again")
    return Found(manifest, store.folder(name, key))


def show_run(home: Home, record: RunRecord) -> None:
    """Print what a run was asked, did and came to, and the artifact of each stage."""
    from flows.commands.recipes.outcome import where_to_look

    console = out()
    took = f", took {run_time(record)}" if record.finished_at else ""
    began = record.started.astimezone().strftime("%Y-%m-%d %H:%M")
    cached = ", all of it cached" if record.cached else ""
    lines = [("run", record.id), ("recipe", f"{record.recipe}, {record.status}{cached}, began {began}{took}")]
    lines += [("changes", " ".join(record.overrides))] if record.overrides else []
    lines += [("failed", record.error)] if record.error else []
    print_facts(console, lines)
    stages = table("stage", "", "artifact", "time", "rows", "size", right=("time", "rows", "size"))
    for name, stage in record.stages.items():
        figures = (format_seconds(stage.build_seconds), stage_rows(record, name), format_bytes(stage.bytes))
        stages.add_row(name, stage.status, stage.key, *figures)
    console.print(stages)
    if record.metrics:
        console.print(metric_table("metric", record.metrics, record.controls))
    connect(home)
    print_facts(console, where_to_look(home, record))
    if record.stages:
        print_facts(console, [("a stage", graphmill_command("inspect", record.id[:8], next(reversed(record.stages))))])


def show_artifact(home: Home, artifact: Found, *, verified: bool) -> None:
    """Print the manifest for people."""
    manifest, console = artifact.manifest, out()
    console.print(f"{manifest.stage} {manifest.key}", style="bold", markup=False)
    console.print(str(artifact.folder), markup=False, soft_wrap=True)
    facts = table("fact", "value")
    for name in type(manifest).model_fields:
        if name not in _APART and not (name in _OF_EPOCHS and is_at_once(manifest)):
            facts.add_row(name, _text(name, getattr(manifest, name)))
    console.print(facts, markup=False)
    values = manifest.model_dump(mode="json")
    if values.get("metrics"):
        console.print(metric_table("metric", values["metrics"], values.get("controls", {})))
    tables = table("table", "rows", "shards", "columns", right=("rows", "shards"))
    for name, entry in values.get("tables", {}).items():
        columns = ", ".join(f"{column} {kind}" for column, kind in entry["columns"].items())
        tables.add_row(name, f"{entry['num_rows']:,}", str(len(entry["shards"])), columns)
    arrays = table("array", "dtype", "shape", right=("shape",))
    for name, entry in sorted(values.get("arrays", {}).items()):
        arrays.add_row(name, entry["dtype"], " x ".join(f"{n:,}" for n in entry["shape"]))
    for shown in (tables, arrays):
        if shown.rows:
            console.print(shown, markup=False)
    for title in ("config", "report"):
        _show_values(console, title, values.get(title, {}))
    keys = {(name, made.digest): made.key for run in all_runs(home) for name, made in run.stages.items()}
    for name, digest in manifest.parents.items():
        key = keys.get((name, digest))
        way = f"digest {digest[:24]}, of no run here" if key is None else graphmill_command("inspect", key)
        console.print(f"{'parent':<8} {name:<10} {way}", markup=False, soft_wrap=True)
    state = "sha256 of all verified" if verified else "sizes verified; --verify compares sha256"
    console.print(f"files    {len(manifest.files)}, {format_bytes(manifest.num_bytes)} ({state})", markup=False)
    for warning in manifest.warnings:
        console.print(f"warning  {warning}", style="yellow", markup=False)


def _text(name: str, value: Any) -> str:
    if isinstance(value, float):
        return format_seconds(value) if name == "seconds" else f"{value:.6g}"
    if name.endswith("_bytes") and isinstance(value, int):
        return format_bytes(value)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        shown = ", ".join(_text("", item) for item in value[:_LIST_SHOWN])
        return shown + (f", ... ({len(value):,} in all)" if len(value) > _LIST_SHOWN else "") or "-"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(key, item)}" for key, item in value.items()) or "-"
    if not isinstance(value, BaseModel):
        return str(value)
    name_of, fields = getattr(value, "name", None), _text("", value.model_dump(exclude={"name"}))
    return f"{name_of} ({fields})" if name_of else fields


def _show_values(console: Any, title: str, values: dict[str, Any]) -> None:
    """Print nested values, a line each, and below them a table of each list of records."""
    if not values:
        return
    lists = dict(_record_lists(values))
    shown = table(title, "value")
    for name, value in flatten(values).items():
        if not any(name.startswith(f"{path}.") for path in lists):
            shown.add_row(name, _text(name, value))
    if shown.rows:
        console.print(shown, markup=False)
    for path, records in lists.items():
        names = list(dict.fromkeys(name for record in records for name in record))
        figures = [name for name in names if all(isinstance(record.get(name, 0), int | float) for record in records)]
        rows = table(*names, right=figures)
        for record in records[:_RECORDS_SHOWN]:
            rows.add_row(*(_text(name, record.get(name)) for name in names))
        more = len(records) - _RECORDS_SHOWN
        console.print(f"{path}" + (f", {_RECORDS_SHOWN} of {len(records):,}" if more > 0 else ""), markup=False)
        console.print(rows, markup=False)


def _record_lists(values: dict[str, Any], above: str = "") -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for name, value in values.items():
        path = f"{above}{name}"
        if isinstance(value, dict):
            yield from _record_lists(value, f"{path}.")
        elif isinstance(value, list) and value and all(isinstance(item, dict) and item for item in value):
            nested = any(isinstance(inner, dict | list) for item in value for inner in item.values())
            yield from [] if nested else [(path, value)]


def write_plots(artifact: Found, output: Path) -> None:
    """Write the artifact's plots into a folder and name them."""
    from configs.source_files import user_path
    from tasks.publish.plots.run_plots import for_manifest

    try:
        paths = for_manifest(artifact.manifest, artifact.folder, user_path(output))
    except OSError as error:
        raise RecipeError(f"--output {output}: {error}") from error
    for path in paths:
        print(path)
    if not paths:
        print(f"{artifact.manifest.stage} has nothing to draw")
