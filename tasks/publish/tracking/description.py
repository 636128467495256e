"""What MLflow shows of a run before all: a description for people, and the parameters that a reader looks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from configs.changes import all_options, changed_options
from configs.schema import Recipe
from tasks.markdown import plain_markdown
from tasks.publish.facts import metric_names, score_rows
from tasks.publish.tracking.records import flatten
from tasks.stage import Parent
from tasks.storage.manifests import DatasetManifest
from tasks.storage.outcomes import EvalReport, GateRecord

_MAIN = (
    "seed",
    "dataset.name",
    "model.name",
    "model.hidden_dim",
    "model.num_layers",
    "model.dropout",
    "train.loader.name",
    "train.loader.batch_size",
    "train.epochs",
    "train.learning_rate",
    "train.weight_decay",
    "train.num_ranks",
)
"""Options that runs are compared by, also where they are at their defaults."""


def parameters(recipe: Recipe) -> dict[str, str]:
    """Return the parameters of a run: the main options, and all that are not at their defaults.

    The others are in the report and beside the model; MLflow's table would show a hundred of them.
    """
    every, changed = all_options(recipe), changed_options(recipe)
    chosen = [key for key in every if key in _MAIN or key in changed]
    return {name: text for key in chosen for name, text in flatten(every[key], key).items()}


def describe(
    recipe: Recipe,
    parents: Mapping[str, Parent],
    notes: Sequence[str],
    version: str = "",
    gate: GateRecord | None = None,
) -> str:
    """Return a description in Markdown: what was trained on what, its metrics beside the controls', what differs.

    `notes` are sentences that a reader of the metrics has to know.
    """
    data: DatasetManifest = parents["ingest"].manifest
    evaluation: EvalReport = parents["evaluate"].manifest
    moment = f", as of {recipe.snapshot.as_of}" if recipe.snapshot.as_of else ""
    rows = score_rows(evaluation.metrics, evaluation.controls)
    names = metric_names(row for row in rows if not row.control)
    table = [f"| | {' | '.join(map(plain_markdown, names))} |", "|---|" + "--:|" * len(names)]
    table += [f"| {plain_markdown(row.label)} | {' | '.join(row.texts(names))} |" for row in rows]
    size = f"{data.num_nodes:,} nodes, {data.num_edges:,} edges"
    lines = [f"**{recipe.name}**{f': {recipe.description}' if recipe.description else ''}", ""]
    lines += [f"{recipe.model.name} on {plain_markdown(data.dataset)}{moment} ({size})", "", *table, ""]
    lines += [line for note in notes for line in (plain_markdown(note), "")]
    if gate is not None:
        champion = "champion" if gate.promoted else "not champion"
        lines += [f"Version {version}: {champion}, {plain_markdown(gate.reason)}", ""]
    changed = ", ".join(f"`{key}={value}`" for key, value in changed_options(recipe).items())
    return "\n".join([*lines, f"Not at their defaults: {changed}"])
