"""One self-contained `report.html` a run: no request leaves it, nothing in it is trusted as markup."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from configs.changes import all_rows, changed_rows
from configs.metric_names import telling
from configs.schema import Recipe
from tasks.publish import snapshots
from tasks.publish.champion import judge
from tasks.publish.plots import run_plots
from tasks.publish.plots.figures import compact
from tasks.publish.report.evaluation_tables import Table
from tasks.publish.report.sections import Section, sections, snapshot_section
from tasks.stage import Parent
from tasks.storage.controls import CONTROLS
from tasks.storage.manifests import EvalReport, is_at_once, rows_text


@dataclass(frozen=True)
class Published:
    """Where a run went: what the report says of MLflow and Prefect."""

    run_id: str = ""
    run_url: str = ""
    how_to_open: str = ""
    model_name: str = ""
    model_version: str = ""
    champion: bool = False
    gate: dict[str, Any] = field(default_factory=dict)
    """What the gate found (`PublishManifest.gate`)."""
    flow_run_id: str = ""
    flow_run_url: str = ""

    @property
    def gate_reason(self) -> str:
        """Why it is champion, or is not."""
        return str(self.gate.get("reason", ""))


def render(
    recipe: Recipe,
    parents: Mapping[str, Parent],
    published: Published,
    snapshot: snapshots.SnapshotSummary | None = None,
    maps: Sequence[Path] = (),
) -> str:
    """Return the page. Parts that a run lacks are left out; `snapshot` is what `snapshots.write_snapshot` returned.

    `maps`: files beside the page that show a layout, a page and pictures.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["svg"] = Markup  # made by our own figures, all text escaped by matplotlib
    evaluation: EvalReport | None = parents["evaluate"].manifest if "evaluate" in parents else None
    stages = stage_rows(parents)
    costs = Section("Costs")
    for what in run_plots.COSTS:
        costs.draw(run_plots.stage_cost(stages, what), what)
    champion = Section("Champion and challenger", judge.facts(published.model_version, published.gate))
    shown = [champion, *([] if snapshot is None else [snapshot_section(snapshot)]), *sections(parents)]
    return environment.get_template("report.jinja").render(
        recipe=recipe,
        maps=[path.name for path in maps],
        map_picture=_picture(maps),
        published=published,
        headline=headline(evaluation),
        result=result_table(evaluation, published.gate),
        sections=[section for section in shown if section.pictures or section.facts],
        changed=dict(changed_rows(recipe)),
        recipe_rows=recipe_rows(recipe),
        recipe_yaml=yaml.safe_dump(json.loads(recipe.model_dump_json()), sort_keys=False, allow_unicode=True),
        stages=stages,
        costs=costs.pictures,
        warnings=[(name, text) for name, parent in parents.items() for text in parent.manifest.warnings],
        lineage=[(name, p.manifest.key, p.manifest.digest, p.manifest.code_version) for name, p in parents.items()],
        per_class=evaluation.report.get("per_class", [])[:100] if evaluation else [],
    )


def _picture(maps: Sequence[Path]) -> str:
    """Return the first PNG of some files inside an address."""
    path = next((path for path in maps if path.suffix == ".png"), None)
    return "" if path is None else f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"


def headline(evaluation: EvalReport | None) -> list[tuple[str, str, str]]:
    """Return (split, metric, value) of the primary metric."""
    if evaluation is None:
        return []
    name = evaluation.metric
    return [(split, name, f"{values[name]:.4f}") for split, values in evaluation.metrics.items() if name in values]


def result_table(evaluation: EvalReport | None, gate: Mapping[str, Any]) -> Table | None:
    """Return what the model scored on each split, and beside it the controls on the same rows, and the champion.

    Where the gate compared on fewer rows the model stands there twice: also with what it has on those.
    """
    if evaluation is None:
        return None
    names = telling(name for values in evaluation.metrics.values() for name in values)
    rows = []
    for split, own in evaluation.metrics.items():
        found = {"this model": own} | _compared(split, own, gate)
        found |= {CONTROLS[name].what: splits[split] for name, splits in evaluation.controls.items() if split in splits}
        for who, values in found.items():
            rows.append((split, who, *(f"{values[name]:.4f}" if name in values else "" for name in names)))
    beside = "; controls, fitted to the training split, are what a model has to beat" if evaluation.controls else ""
    return Table(f"Metrics of the best checkpoint{beside}", ("split", "scored by", *names), rows, figures=len(names))


def _compared(split: str, own: Mapping[str, float], gate: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The champion that the gate compared with, where it was measured on this split, and the model on the same rows."""
    gate_split, _, metric = str(gate.get("metric", "")).partition("/")
    if gate.get("champion") is None or gate_split != split:
        return {}
    word = "champion before" if gate["promoted"] else "champion"
    found = {f"version {gate['against']}, the {word}": {metric: gate["champion"]}}
    if gate["challenger"] == own.get(metric):
        return found
    where = f", on the {gate['rows']:,} rows that both were compared on"
    return {f"this model{where}": {metric: gate["challenger"]}} | {f"{who}{where}": row for who, row in found.items()}


def stage_rows(parents: Mapping[str, Parent]) -> list[dict[str, Any]]:
    """Return time, memory, rows and bytes of each stage."""
    manifests = {name: parent.manifest for name, parent in parents.items()}
    return [
        {
            "name": name,
            "seconds": m.seconds,
            "peak_bytes": m.peak_bytes,
            "rows": rows_text(name, m.rows, at_once=is_at_once(m)),
            "speed": f"{compact(m.rows / m.seconds)}/s" if m.rows and m.seconds > 0 else "",
            "size": f"{m.num_bytes / 1e6:,.1f} MB",
            "made": m.created_at,
        }
        for name, m in manifests.items()
    ]


def recipe_rows(recipe: Recipe) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return all options by section as rows of (option, value), without what was left at null."""
    found: dict[str, list[tuple[str, str]]] = {}
    for key, value in all_rows(recipe):
        section, _, option = key.partition(".")
        if value != "null" and (section != "snapshot" or recipe.snapshot.as_of is not None):
            found.setdefault(section, []).append((option or section, value))
    return list(found.items())
