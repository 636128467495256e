"""One self-contained `report.html` a run: no request leaves it, nothing in it is trusted as markup."""

from __future__ import annotations

import base64
import importlib
import json
import pkgutil
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from configs.changes import all_rows, changed_rows
from configs.schema import Recipe
from tasks.publish.facts import metric_names, predicted_from, score_rows
from tasks.publish.report import sections
from tasks.publish.report.parts import ReportedRun, ReportTable, Section
from tasks.publish.tracking.store_uris import how_to_open
from tasks.storage.controls import CONTROLS
from tasks.storage.outcomes import EvalReport, GateRecord


def render(run: ReportedRun, maps: Sequence[Path] = (), warn: Callable[[str], None] | None = None) -> str:
    """Return the page. Parts that a run lacks are left out.

    `maps`: files beside the page that show a layout, a page and pictures. `warn` is told of a section that raises,
    which is left out; None: the page is not made.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["svg"] = Markup  # made by our own figures, all text escaped by matplotlib
    recipe, manifests = run.recipe, {name: parent.manifest for name, parent in run.parents.items()}
    evaluation: EvalReport | None = manifests.get("evaluate")
    picture = next((path for path in maps if path.suffix == ".png"), None)
    judged: list[tuple[str, str, str]] = []  # (split, metric, value) of the metric that judges the model
    if evaluation is not None:
        name = evaluation.metric
        judged = [(split, name, f"{of[name]:.4f}") for split, of in evaluation.metrics.items() if name in of]
    return environment.get_template("report.jinja").render(
        recipe=recipe,
        maps=[path.name for path in maps],
        map_picture="" if picture is None else base64.b64encode(picture.read_bytes()).decode(),
        published=run.publication,
        how_to_open=how_to_open(run.publication.run_url),
        headline=judged,
        result=result_table(evaluation, run.publication.gate),
        sections=_sections(run, warn),
        changed=dict(changed_rows(recipe)),
        recipe_rows=recipe_rows(recipe),
        recipe_yaml=yaml.safe_dump(json.loads(recipe.model_dump_json()), sort_keys=False, allow_unicode=True),
        made=next((manifest.created_at for manifest in reversed(manifests.values())), ""),
        warnings=[(name, text) for name, manifest in manifests.items() for text in manifest.warnings],
        lineage=[(name, one.key, one.digest, one.code_version) for name, one in manifests.items()],
    )


def _sections(run: ReportedRun, warn: Callable[[str], None] | None) -> list[Section]:
    made: list[tuple[int, Section]] = []
    for name in sorted(one.name for one in pkgutil.iter_modules(sections.__path__)):
        try:
            module = importlib.import_module(f"{sections.__name__}.{name}")
            section = module.section(run)
            if section is not None and (section.facts or section.tables or section.pictures):
                made.append((module.ORDER, section))
        except Exception as error:
            if warn is None:
                raise
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}, line {place.lineno}"
            warn(f"the report lacks its section {name}: {type(error).__name__}: {error} ({where})")
    return [section for _, section in sorted(made, key=lambda one: one[0])]


def result_table(evaluation: EvalReport | None, gate: GateRecord | None) -> ReportTable | None:
    """Return what the model scored on each split, and beside it the controls on the same rows, and the champion.

    Where the gate compared on fewer rows the model stands there twice: also with what it has on those. So it does where
    `evaluate.threshold` decides: also with accuracy and F1 as predictions have them.
    """
    if evaluation is None:
        return None
    scored = score_rows(evaluation.metrics, evaluation.controls)
    names = metric_names(row for row in scored if not row.control)
    report, rows = evaluation.report, []
    decided = report.get("at_threshold", {})
    for row in scored:
        who = CONTROLS[row.control].what if row.control else "this model"
        rows.append((row.split, who, *row.texts(names)))
        if not row.control and row.split in decided:
            at_threshold = replace(row, values=decided[row.split])
            rows.append((row.split, f"this model, {predicted_from(report)}", *at_threshold.texts(names)))
        if gate is not None and not row.control and gate.metric.partition("/")[0] == row.split:
            rows += [(row.split, name, *texts) for name, texts in _compared(gate, row.values, names)]
    beside = "; controls, fitted to the training split, are what a model has to beat" if evaluation.controls else ""
    if decided:
        beside += "; accuracy and F1 are of the likelier class, but where a row names a probability"
    return ReportTable(
        f"Metrics of the best checkpoint{beside}", ("split", "scored by", *names), rows, figures=len(names)
    )


def _compared(gate: GateRecord, metrics: Mapping[str, float], names: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return the champion that the gate compared with, and the model where it was measured on other rows."""
    if gate.champion is None or gate.challenger is None:
        return []
    metric = gate.metric.partition("/")[2]
    rows = {f"version {gate.against}, the champion{' before' if gate.promoted else ''}": gate.champion}
    if gate.challenger != metrics.get(metric):
        where = f", on the {gate.rows:,} rows that both were compared on"
        rows = {f"{who}{where}": value for who, value in {"this model": gate.challenger, **rows}.items()}
    return [(who, [f"{value:.4f}" if name == metric else "" for name in names]) for who, value in rows.items()]


def recipe_rows(recipe: Recipe) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return all options by section as rows of (option, value), without what was left at null."""
    rows: dict[str, list[tuple[str, str]]] = {}
    for key, value in all_rows(recipe):
        name, _, option = key.partition(".")
        if value != "null" and (name != "snapshot" or recipe.snapshot.as_of is not None):
            rows.setdefault(name, []).append((option or name, value))
    return list(rows.items())
