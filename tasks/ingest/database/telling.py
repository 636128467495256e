"""What is said of a database that was read: what its columns are taken as, and what may not be meant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from configs.matching import listed
from tasks.ingest.database.features import ChosenColumns
from tasks.ingest.database.predicted.splitting import DealtTasks
from tasks.ingest.database.predicted.targets import Tasks
from tasks.ingest.database.relations import RelationWriter
from tasks.ingest.database.rows import TableRows
from tasks.ingest.tables.intake import Intake
from tasks.stage import StageContext


def tell(
    predicted: tuple[Tasks, DealtTasks],
    tables: dict[str, TableRows],
    columns: dict[str, ChosenColumns],
    relations: Sequence[RelationWriter],
    context: StageContext,
    intake: Intake,
) -> None:
    """Say it, as messages and warnings."""
    tasks, dealt = predicted
    for name, chosen in columns.items():
        _tell_columns(tables[name], chosen, context, intake)
        times = tables[name].time
        if times is not None and dealt.first_valid is not None and times.min() >= dealt.first_valid:
            intake.hints.append(
                f"{tables[name].config.names}: no row is older than the first moment that validates: a model learns "
                f"nothing of {name}"
            )
    for relation in relations:
        source, column, target = relation.triplet
        if relation.num_younger:
            intake.hints.append(
                f"{relation.num_younger:,} rows of {source} name by {column} a row of {target} that is younger than "
                "they are; such an edge is there from the younger one's time on"
            )
        if not relation.check.num_edges:
            intake.hints.append(f"{source}: no row names anything by {column}; leave the foreign key out")
    for split, rows in dealt.splits.items():
        of_one_label = tasks.facts.task_type in ("binary", "multiclass")
        if of_one_label and len(np.unique(tasks.label[rows])) == 1:
            intake.hints.append(
                f"all {len(rows):,} rows of the {split} split have the label {tasks.label[rows[0]].item():g}: nothing "
                "can be measured there; move the moments, or change what is predicted"
            )
    if dealt.left_out:
        intake.hints.append(
            f"{dealt.left_out:,} of {len(tasks.entity):,} rows to be predicted are in no split: their horizon reaches "
            "into the next one: what they tell would not be known there"
        )
    for hint in intake.hints:
        context.warn(hint)


def _tell_columns(table: TableRows, chosen: ChosenColumns, context: StageContext, intake: Intake) -> None:
    read = (
        ("numbers", chosen.numbers),
        ("categories", chosen.categories),
        ("times", chosen.times),
        ("texts", chosen.texts),
    )
    words = "; ".join(f"{what}: {listed(names)}" for what, names in read if names) or "no column is a feature"
    context.message(f"{table.name}: {table.num_rows:,} rows; {words}")
    option = f"dataset.tables.{table.name}.columns"
    if chosen.constant:
        intake.hints.append(
            f"{table.config.names}: columns of one value tell nothing: {listed(chosen.constant)}; leave them out of "
            f"{option}"
        )
    if chosen.ignored:
        intake.unread[table.config.names] = list(chosen.ignored)
        reasons = "; ".join(f"{column} {why}" for column, why in chosen.ignored.items())
        context.message(f"{table.name}: not read: {reasons} ({option} says otherwise)")
