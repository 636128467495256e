"""`graphmill compare`: two runs side by side, in configuration, data and metrics."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from configs.changes import as_text
from configs.errors import IntegrityError
from flows.commands.recipes.plan import flatten, shorten
from flows.records.run_record import RunRecord
from flows.terminal.console import out, table
from tasks.calls import load_stage
from tasks.storage.artifacts import ArtifactStore
from tasks.storage.home import Home

# What a manifest says of the data, besides digests.
_FACTS = {
    "ingest": ("dataset", "task", "num_nodes", "num_edges", "num_graphs", "num_classes", "splits", "num_self_loops"),
    "preprocess": ("num_nodes", "num_edges", "feature_dim", "categories", "splits"),
    "components": ("num_nodes", "num_edges", "splits"),
    "partition": ("num_parts", "partitioner", "edge_cut", "node_balance"),
    "train": ("best_epoch", "epochs_run", "num_parameters", "world_size", "code_version"),
}
_DATA, _TRAINING = ("ingest", "preprocess", "components", "partition"), ("train",)
_DIGEST_SHOWN = 12


def compare_runs(home: Home, first: RunRecord, second: RunRecord) -> dict[str, Any]:
    """Return pairs of what differs in `config`, `data` and `training`, and all `metrics`; None: one run has it not."""
    flat = [
        {f"{split}/{name}": value for split, values in record.metrics.items() for name, value in values.items()}
        for record in (first, second)
    ]
    metrics: dict[str, list[float | None]] = {}
    for name in {**flat[0], **flat[1]}:
        a, b = flat[0].get(name), flat[1].get(name)
        metrics[name] = [a, b, None if a is None or b is None else b - a]
    data, training = ([_facts(home, r, stages) for r in (first, second)] for stages in (_DATA, _TRAINING))
    names = {"id", "recipe", "status", "started_at", "overrides"}
    return {
        "runs": [record.model_dump(include=names) for record in (first, second)],
        "config": _differing(flatten(first.config), flatten(second.config)),
        "data": _differing(*data),
        "training": _differing(*training),
        "metrics": metrics,
    }


def _differing(first: dict[str, Any], second: dict[str, Any]) -> dict[str, list[Any]]:
    names = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    return {name: [first.get(name), second.get(name)] for name in names}


def _facts(home: Home, record: RunRecord, stages: tuple[str, ...]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for stage, made in record.stages.items():
        if stage not in stages:
            continue
        facts[f"{stage}.digest"] = made.digest[:_DIGEST_SHOWN]
        with suppress(IntegrityError):
            manifest = ArtifactStore(home).load(stage, made.key, load_stage(stage).manifest)
            if manifest is not None:
                values = manifest.model_dump(mode="json", include=set(_FACTS[stage]))
                facts |= flatten({name: values[name] for name in _FACTS[stage] if name in values}, stage)
    return facts


def show_comparison(compared: dict[str, Any]) -> None:
    """Print the differences for people."""
    console = out()
    runs = compared["runs"]
    names = [f"{label} {run['id'][:8]}" for label, run in zip("AB", runs, strict=True)]
    for name, run in zip(names, runs, strict=True):
        changes = f": {' '.join(run['overrides'])}" if run["overrides"] else ""
        console.print(f"{name}  {run['recipe']}, {run['status']}, {run['started_at'][:16]}{changes}", markup=False)
    same = {"config": "the same configuration", "data": "the same data", "training": "the same training"}
    for title, nothing in same.items():
        if not compared[title]:
            console.print(nothing)
            continue
        shown = table(title, *names)
        for name, (a, b) in compared[title].items():
            shown.add_row(name, _text(a), _text(b))
        console.print(shown, markup=False)
    if compared["metrics"]:
        shown = table("metric", *names, "B - A", right=(*names, "B - A"))
        for name, (a, b, change) in compared["metrics"].items():
            values = ("-" if value is None else f"{value:.4f}" for value in (a, b))
            shown.add_row(name, *values, "" if change is None else f"{change:+.4f}")
        console.print(shown, markup=False)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else as_text(value)
    return shorten(text, 80)
