"""What is said of a database that was read: what its columns are taken as, and what may not be meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from configs.matching import listed
from tasks.ingest.database.features import ChosenColumns
from tasks.ingest.database.predicted.splitting import DealtTasks
from tasks.ingest.database.predicted.targets import Tasks
from tasks.ingest.database.relations import RelationWriter
from tasks.ingest.database.rows import TableRows
from tasks.ingest.tables.intake import Intake
from tasks.stage import StageContext


class Outcome(NamedTuple):
    """What became of a database."""

    entities: str
    tables: dict[str, TableRows]
    columns: dict[str, ChosenColumns]
    relations: Sequence[RelationWriter]
    tasks: Tasks
    dealt: DealtTasks


def tell(outcome: Outcome, context: StageContext, intake: Intake) -> None:
    """Say it, as messages and warnings."""
    for name, chosen in outcome.columns.items():
        _tell_columns(outcome.tables[name], chosen, context, intake)
        times = outcome.tables[name].time
        first_valid = outcome.dealt.first_valid
        if times is not None and first_valid is not None and times.min() >= first_valid:
            intake.hints.append(
                f"{outcome.tables[name].config.names}: no row is older than the first moment that validates: a model "
                f"learns nothing of {name}"
            )
    _hint_at_relations(outcome.relations, intake)
    _hint_at_splits(outcome, intake)
    for hint in intake.hints:
        context.warn(hint)


def _tell_columns(table: TableRows, chosen: ChosenColumns, context: StageContext, intake: Intake) -> None:
    read = [
        ("numbers", chosen.numbers),
        ("categories", chosen.categories),
        ("times", chosen.times),
        ("texts", chosen.texts),
    ]
    words = "; ".join(f"{what}: {listed(names)}" for what, names in read if names) or "no column is a feature"
    context.message(f"{table.name}: {table.num_rows:,} rows; {words}")
    if chosen.constant:
        intake.hints.append(
            f"{table.config.names}: columns of one value tell nothing: {listed(chosen.constant)}; leave them out of "
            f"dataset.tables.{table.name}.columns"
        )
    unread = {column: why for column, why in chosen.ignored.items() if why != "columns"}
    if unread:
        intake.unread[table.config.names] = list(unread)
        told = "; ".join(f"{column} {why}" for column, why in unread.items())
        context.message(f"{table.name}: not read: {told} (dataset.tables.{table.name}.columns says otherwise)")


def _hint_at_relations(relations: Sequence[RelationWriter], intake: Intake) -> None:
    for relation in relations:
        source, column, target = relation.triplet
        if relation.num_younger:
            intake.hints.append(
                f"{relation.num_younger:,} rows of {source} name by {column} a row of {target} that is younger than "
                "they are; such an edge is there from the younger one's time on"
            )
        if not relation.check.num_edges:
            intake.hints.append(f"{source}: no row names anything by {column}; leave the foreign key out")


def _hint_at_splits(outcome: Outcome, intake: Intake) -> None:
    tasks, dealt = outcome.tasks, outcome.dealt
    for split, rows in dealt.splits.items():
        of_one_label = tasks.task_type in ("binary", "multiclass")
        if of_one_label and len(np.unique(tasks.label[rows])) == 1:
            value = tasks.label[rows[0]].item()
            intake.hints.append(
                f"all {len(rows):,} rows of the {split} split have the label {value:g}: nothing can be measured there; "
                "move the moments, or change what is predicted"
            )
    if dealt.left_out:
        intake.adjust(outcome.tables[outcome.entities].config, "tasks of no split", dealt.left_out)
        intake.hints.append(
            f"{dealt.left_out:,} of {len(tasks.entity):,} rows to be predicted are in no split: their horizon reaches "
            "into the next one: what they tell would not be known there"
        )
