"""A database to the tables of a data set: keys and times, what is predicted, what columns hold, then rows and edges.

Each table is read three times (a link table with categories four times), in chunks; what stays in memory is the index
of the keys, the times, and what is predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError, UserError
from configs.matching import listed
from configs.moments import TimeUnit
from tasks.arrays import Array, blocks
from tasks.ingest.database.configs import DatabaseConfig
from tasks.ingest.database.features import ChosenColumns, TableFeatures, choose_columns, feature_candidates
from tasks.ingest.database.moments import time_text
from tasks.ingest.database.predicted.configs import columns_of
from tasks.ingest.database.predicted.label_tables import label_tasks, own_tasks, write_own_ids
from tasks.ingest.database.predicted.links import describe_ranking, ranking_tasks, tell_ranking, write_links
from tasks.ingest.database.predicted.splitting import DealtTasks, deal
from tasks.ingest.database.predicted.targets import Tasks, computed_tasks
from tasks.ingest.database.relations import (
    RelationWriter,
    check_keys,
    row_times,
    write_rows_as_edges,
    write_rows_as_nodes,
)
from tasks.ingest.database.rows import TableRows, in_order
from tasks.ingest.database.survey import EXPLICIT, Profile
from tasks.ingest.dataset_fields import dataset_fields
from tasks.ingest.tables.intake import Intake, with_header_found
from tasks.ingest.writer import DatasetWriter
from tasks.stage import StageContext
from tasks.storage.graph_facts import LINKS_RELATION, TASK_RELATION
from tasks.storage.graph_store import id_dtype
from tasks.storage.manifests import EdgeType, NodeType

_ROWS = 1 << 18


def ingest_database(config: DatabaseConfig, context: StageContext, intake: Intake) -> dict[str, Any]:
    """Write all tables; return the fields of DatasetManifest.

    Mistakes are gathered over all tables, and end it before anything is written.

    Raises DataError: naming all mistakes. Raises RecipeError: options that do not go together.
    """
    config = settled(config, intake)
    for note in intake.notes:
        context.message(note)
    tables = scan_tables(config, context, intake)
    unit = _common_unit(tables, intake)
    try:
        tasks, unit = _tasks(config, tables, unit, intake)
        dealt = deal(tasks, config.predict, tables[config.predict.table].nodes, unit)
    except UserError:  # what is wrong with columns and keys is named all the same, and may be why
        _survey(config, tables, None, context, intake)
        intake.problems.raise_any()
        raise
    columns = _survey(config, tables, dealt.first_valid, context, intake)
    intake.problems.raise_any()
    predict = config.predict
    with DatasetWriter(context.work) as writer:
        nodes, relations = _write(config, tables, columns, (tasks, dealt, unit), writer, context)
        if tasks.links is not None:
            made = write_links(tasks.links.all, tables, writer)
            relations += [] if made is None else [made]
            context.message(tell_ranking(tasks.links.all, tasks, unit))
        edge_types = [relation.describe() for relation in relations]
        if not predict.own_rows:
            task_type, task_edges = _write_tasks(config, tables, tasks, unit, writer)
            nodes.append(task_type)
            edge_types += task_edges
        for split, rows in dealt.splits.items():
            writer.write(f"split/{split}", {"node_id": rows.astype(np.int64)})
    facts = tasks.facts
    intake.adjust(tables[predict.table].config, "tasks of no split", dealt.left_out)
    tell((tasks, dealt), tables, columns, relations, context, intake)
    return dataset_fields(
        writer,
        config.title,
        facts.task_type,
        num_classes=facts.num_classes,
        metric=predict.metric or (f"{facts.heads[0].name}.{facts.heads[0].metric}" if facts.heads else None),
        heads=facts.heads,
        directed=True,
        node_types=nodes,
        edge_types=edge_types,
        foreign_keys=tuple(e.name for e, r in zip(edge_types, relations, strict=False) if r.is_key),
        target_type=predict.table if predict.own_rows else predict.name,
        fit_before=dealt.first_valid,
        time_unit=unit if dealt.first_valid is not None else "",
        ranking=None if tasks.links is None else describe_ranking(config, tasks.links.all, tables, unit),
        checks=[relation.check for relation in relations],
        adjusted=intake.adjusted,
    )


def settled(config: DatabaseConfig, intake: Intake) -> DatabaseConfig:
    """Return the options with each `header: auto` settled, and the names that tables have in DuckDB files."""
    tables = {
        name: with_header_found(table, f"dataset.tables.{name}", intake).model_copy(
            update={"table": table.table or name}
        )
        for name, table in config.tables.items()
    }
    predict = config.predict
    predicted = tables[predict.table]
    if predict.own_rows and predicted.is_link:
        tables[predict.table] = predicted.model_copy(update={"link": False})
        intake.notes.append(
            f"{predict.table}: its rows are predicted, so they are nodes with an edge to either end, and no edges"
        )
    if predict.labels is not None:
        labels = with_header_found(predict.labels, "dataset.predict.labels", intake)
        predict = predict.model_copy(update={"labels": labels.model_copy(update={"table": labels.table or "labels"})})
    return config.model_copy(update={"tables": tables, "predict": predict})


def scan_tables(config: DatabaseConfig, context: StageContext, intake: Intake) -> dict[str, TableRows]:
    """Read keys and times of all tables. Raises DataError where a table could not be read."""
    order = in_order(config.tables)
    tables = {n: TableRows(n, table, intake, text_ids=config.text_ids) for n, table in config.tables.items()}
    for table in tables.values() if not config.text_ids else ():
        intake.hint_at_leading_zero(table.config, [table.config.key] if table.config.key else [])
    if config.predict.label is not None:
        tables[config.predict.table].labels = columns_of(config.predict.label)
    for done, name in enumerate(order):
        with intake.problems.gathering() as ended:
            feature_candidates(tables[name])  # columns that the recipe names are there
            tables[name].scan(tables)
        tables[name].nodes.broken |= bool(ended)
        context.progress(done + 1, len(order), "tables", "keys")
    if any(table.nodes.broken for table in tables.values()):
        intake.problems.raise_any()
    return tables


def _common_unit(tables: dict[str, TableRows], intake: Intake) -> TimeUnit:
    """Return what all times count; tables that do not go together are gathered."""
    units = {table.name: table.clock.unit for table in tables.values() if table.clock and table.clock.unit}
    dates = [name for name, unit in units.items() if unit == "seconds"]
    whole = [name for name, unit in units.items() if unit == "number"]
    if dates and whole:
        table = tables[whole[0]].config
        error = DataError(
            f"holds whole numbers, and the time of {dates[0]} ({tables[dates[0]].config.time}) dates: they do not "
            f"compare; say what they count (dataset.tables.{whole[0]}.epoch: seconds, or milliseconds), or store dates",
            path=table.names,
            column=table.time,
        )
        intake.problems.add(table.names, table.time, "times of two kinds", error, 0)
    zoned = [table.name for table in tables.values() if table.clock and table.clock.zoned]
    naive = [table.name for table in tables.values() if table.clock and table.clock.zoned is False]
    if zoned and naive:
        intake.hints.append(
            f"times of {listed(zoned)} have offsets from UTC, those of {listed(naive)} none: they are taken as UTC; if "
            "they are of another zone, store them with their offset"
        )
    return "number" if whole else "seconds"


def _survey(
    config: DatabaseConfig, tables: dict[str, TableRows], before: int | None, context: StageContext, intake: Intake
) -> dict[str, ChosenColumns]:
    """Find what columns hold, and gather foreign keys that name no row.

    `before`: rows from then on do not say whether a column is a number or a category; None: all do.
    """
    chosen: dict[str, ChosenColumns] = {}
    most = EXPLICIT * config.max_categories
    for done, (name, table) in enumerate(tables.items()):
        with intake.problems.gathering():
            candidates = feature_candidates(table)
            seen, counted = {column: Profile(most=most) for column in candidates}, dict[str, int]()
            keys = list(table.config.foreign)
            texts = table.texts_of_keys(tables, keys)
            texts += [column for column in candidates if table.config.columns.get(column) in ("category", "text")]
            for chunk in table.chunks([*candidates, *keys], texts, (), candidates):
                times = row_times(table, tables, chunk.time, check_keys(table, tables, chunk.batch, counted))
                decide = None if times is None or before is None else times < before
                for column, profile in seen.items():
                    profile.add(chunk.batch, column, decide)
            for column, count in counted.items():
                intake.adjust(table.config, f"foreign keys {column} that name no row dropped", count)
                intake.hints.append(
                    f"{table.config.names} (column {column}): {count:,} foreign keys name no row of "
                    f"{table.config.foreign[column]}; those rows stay without that edge (on_unknown_id: count)"
                )
            chosen[name] = choose_columns(table, seen, config.max_categories, intake)
        context.progress(done + 1, len(tables), "tables", "columns")
    return chosen


def _tasks(
    config: DatabaseConfig, tables: dict[str, TableRows], unit: TimeUnit, intake: Intake
) -> tuple[Tasks, TimeUnit]:
    labels = config.predict.labels
    target = config.predict.target
    if config.predict.own_rows:
        return own_tasks(config, tables), unit
    if target is not None and target.is_ranked:
        return ranking_tasks(config, tables, unit, intake), unit
    if config.predict.computed:
        return computed_tasks(config, tables, unit), unit
    assert labels is not None
    tasks, label_unit = label_tasks(labels, tables[config.predict.table], intake)
    timed = any(table.time is not None for table in tables.values())
    if timed and label_unit != unit:
        words = {"seconds": "dates", "number": "whole numbers"}
        raise DataError(
            f"holds {words[label_unit]}, and times of the tables are {words[unit]}: they do not compare; give `epoch`, "
            "or store both alike",
            path=labels.names,
            column=labels.time,
        )
    return tasks, label_unit


def _write(
    config: DatabaseConfig,
    tables: dict[str, TableRows],
    columns: dict[str, ChosenColumns],
    predicted: tuple[Tasks, DealtTasks, TimeUnit],
    writer: DatasetWriter,
    context: StageContext,
) -> tuple[list[NodeType], list[RelationWriter]]:
    nodes: list[NodeType] = []
    relations: list[RelationWriter] = []
    tasks, dealt, unit = predicted
    fit_before = dealt.first_valid
    if fit_before is None:  # what is predicted has no time, and sees all
        fit_before = max([table.newest or 0 for table in tables.values()]) + 1
    for done, (name, table) in enumerate(tables.items()):
        features = TableFeatures(table, columns[name], fit_before=fit_before, per_day=unit == "seconds")
        if table.config.is_link:
            relations.append(write_rows_as_edges(table, tables, features, writer))
        else:
            is_predicted = config.predict.own_rows and name == config.predict.table
            label = tasks.label if is_predicted else None
            node_type, of_keys = write_rows_as_nodes(table, tables, features, writer, label)
            if is_predicted:
                write_own_ids(table, writer)
            nodes.append(node_type)
            relations += of_keys
        features.reader.hint_at_long_texts(table.config, table.intake)
        for column, count in features.num_later.items():
            if count:
                table.intake.adjust(table.config, f"times {column} later than their row taken as empty", count)
                table.intake.hints.append(
                    f"{table.config.names} (column {column}): {count:,} times are later than their own row's, when "
                    "nobody could know them; they are taken as empty"
                )
        context.progress(done + 1, len(tables), "tables", "written")
    return nodes, relations


def _write_tasks(
    config: DatabaseConfig,
    tables: dict[str, TableRows],
    tasks: Tasks,
    unit: TimeUnit,
    writer: DatasetWriter,
) -> tuple[NodeType, list[EdgeType]]:
    """Write what is predicted as nodes, each with an edge to its entity and to what it is linked to."""
    assert tasks.moment is not None
    name, entities, count = config.predict.name, tables[config.predict.table], len(tasks.entity)
    kind = id_dtype(max(count, entities.num_rows))
    of_entities = EdgeType(source=name, relation=TASK_RELATION, target=entities.name, num_edges=count)
    with (
        writer.table(f"nodes/{name}") as nodes,
        writer.table(f"ids/{name}") as ids,
        writer.table(f"edges/{of_entities.name}") as edges,
    ):
        for some in blocks(count, _ROWS):
            entity, moment = tasks.entity[some], tasks.moment[some]
            numbers = np.arange(some.start, some.stop, dtype=np.int64)
            past = {name: values[some] for name, values in tasks.past.items()}
            nodes.write({"node_id": numbers, "label": tasks.label[some], "time": moment} | past)
            ids.write({"node_id": numbers, **_task_ids(entities, entity, moment, unit)})
            edges.write({"src": numbers.astype(kind), "dst": entity.astype(kind), "time": moment})
    edge_types = [of_entities]
    if tasks.links is not None:
        links, target = tasks.links, tables[tasks.links.all.path.target]
        kind = id_dtype(max(count, target.num_rows))
        made = EdgeType(source=name, relation=LINKS_RELATION, target=target.name, num_edges=len(links.task))
        ends = {"src": links.task.astype(kind), "dst": links.target.astype(kind)}
        writer.write(f"edges/{made.name}", ends | {"time": tasks.moment[links.task]})
        edge_types.append(made)
    return NodeType(name=name, num_nodes=count), edge_types


def _task_ids(entities: TableRows, entity: Array, moment: Array, unit: TimeUnit) -> dict[str, pa.Array]:
    """Return of each task its `entity` and `moment`, and both in one text, `ENTITY@MOMENT`."""
    index = entities.nodes.index
    keys = pa.array(entity) if index is None else index.keys().take(pa.array(entity))
    distinct, codes = np.unique(moment, return_inverse=True)
    moments = pa.array([time_text(int(time), unit) for time in distinct], pa.string()).take(pa.array(codes))
    whole = compute.binary_join_element_wise(keys.cast(pa.string()), moments, "@")
    return {"original_id": whole, "entity": keys, "moment": moments}


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
