"""What is recommended: to which rows of another table an entity is linked within the horizon of a moment.

Memory: 40 bytes for each row that links, 16 for each link that is to be predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

import numpy as np

from configs.errors import DataError
from configs.moments import TimeUnit
from tasks.arrays import Array, blocks
from tasks.ingest.database.configs import DatabaseConfig
from tasks.ingest.database.moments import length_time, time_text
from tasks.ingest.database.predicted.label_values import LabelFacts
from tasks.ingest.database.predicted.link_paths import link_path
from tasks.ingest.database.predicted.targets import (
    Links,
    PositiveLinks,
    Tasks,
    checked_moments,
    presence_of,
    refuse_empty,
)
from tasks.ingest.database.relations import RelationWriter
from tasks.ingest.database.rows import TableRows, look_up
from tasks.ingest.tables.intake import Intake
from tasks.ingest.writer import DatasetWriter
from tasks.sizes import need_memory
from tasks.storage.file_names import file_name, joined_name
from tasks.storage.graph_store import ALWAYS
from tasks.storage.manifests import RankingTask

_ROWS = 1 << 20


def read_links(config: DatabaseConfig, tables: Mapping[str, TableRows]) -> Links:
    """Read who is linked to what, and since when. Raises DataError: there are none."""
    path = link_path(config.predict, config.tables)
    rows = tables[path.table]
    need_memory(40 * rows.num_rows, f"{rows.num_rows:,} links of {rows.name}", "take fewer rows")
    target = _foreign_keys(rows, path.column, tables)
    entity: Array = np.arange(rows.num_rows)
    time: Array = np.full(rows.num_rows, ALWAYS, np.int64)
    for name, column in path.steps:
        table, is_there = tables[name], entity >= 0
        if table.time is not None:
            np.maximum(time, table.time[np.where(is_there, entity, 0)], out=time, where=is_there)
        keys = _foreign_keys(table, column, tables)
        entity = np.where(is_there, keys[np.where(is_there, entity, 0)], -1)
    owner = tables[path.owner]
    if path.together and owner.time is not None:
        np.maximum(time, owner.time[np.where(entity >= 0, entity, 0)], out=time, where=entity >= 0)
    both = np.flatnonzero((entity >= 0) & (target >= 0))
    if not len(both):
        raise DataError(
            f"no row links {path.owner} to {path.target}: there is nothing to recommend",
            path=rows.config.names,
        )
    order = both[np.argsort(time[both], kind="stable")]
    return Links(path, entity[order], target[order], time[order])


def _foreign_keys(rows: TableRows, column: str, tables: Mapping[str, TableRows]) -> Array:
    """Return the dense ids that a foreign key names, int64 (num_rows,); below 0 where it names none."""
    silent, ids = Intake(), np.empty(rows.num_rows, np.int64)
    target = tables[rows.config.foreign[column]].nodes
    for chunk in rows.chunks([column], rows.texts_of_keys(tables, [column]), intake=silent):
        ids[chunk.first : chunk.first + chunk.batch.num_rows] = look_up(chunk.batch, column, target)
    return ids


def ranking_tasks(config: DatabaseConfig, tables: Mapping[str, TableRows], unit: TimeUnit, intake: Intake) -> Tasks:
    """Return entities at moments, with what they are linked to within the horizon: the label is how many that are.

    Entities without such a link are left out, and links to rows that are no older than the moment: nobody could have
    recommended those. With `new_only` so are links to what an entity was linked to before.

    Raises DataError: a moment whose horizon reaches beyond the data, or at which there is nobody.
    """
    predict, links, present = config.predict, read_links(config, tables), presence_of(config, tables, unit)
    timed = next(tables[name] for name in links.path.tables if tables[name].time is not None)
    horizon, moments = checked_moments(predict, [timed], unit)
    targets = tables[links.path.target]
    parts: list[tuple[Array, ...]] = []
    count = without = too_young = 0
    for moment, is_later in moments:
        there = present(moment)
        entity, target = (np.empty(0, np.int64),) * 2
        if is_later:
            ids, label = np.flatnonzero(there), np.full(int(there.sum()), np.nan)
        else:
            entity, target, young = _positives(links, targets, moment, horizon, new_only=predict.new_only)
            too_young += young
            kept = there[entity]
            entity, target = entity[kept], target[kept]
            ids, label = np.unique(entity, return_counts=True)
            without += int(there.sum()) - len(ids)
        if not len(ids):
            refuse_empty(predict, tables[predict.table], moment, unit, someone=bool(there.any()))
        task = count + np.searchsorted(ids, entity)
        parts.append((ids, np.full(len(ids), moment), label.astype(np.float64), task, target))
        count += len(ids)
        need_memory(40 * count, "what is to be predicted", "name fewer moments")
    entities, moment_of, labels, task, target = (np.concatenate(part) for part in zip(*parts, strict=True))
    if without:
        intake.adjust(tables[predict.table].config, "rows without a link within the horizon left out", without)
    if too_young:
        intake.hints.append(
            f"{too_young:,} links are left out, to rows of {targets.name} that are no older than the moment: nobody "
            "can recommend them then"
        )
    positive = PositiveLinks(links, task, target, without)
    return Tasks(entities, moment_of, labels.astype(np.float32)[:, None], LabelFacts("ranking", 0), positive)


def _positives(
    links: Links, targets: TableRows, moment: int, horizon: int, *, new_only: bool
) -> tuple[Array, Array, int]:
    """Return entity and target of the links of a moment, each pair once, and how many have too young targets."""
    some = links.between(moment, moment + horizon)
    size = targets.num_rows
    if links.path.together:
        pairs = _pairs_together(links.entity[some], links.target[some], size)
    else:
        pairs = np.unique(links.entity[some] * size + links.target[some])
    if new_only:
        before = links.between(ALWAYS, moment)
        pairs = np.setdiff1d(pairs, links.entity[before] * size + links.target[before], assume_unique=False)
    entity, target = np.divmod(pairs, size)
    if targets.time is None:
        return entity, target, 0
    there = targets.time[target] < moment
    return entity[there], target[there], int(np.count_nonzero(~there))


def _pairs_together(owner: Array, target: Array, size: int) -> Array:
    """Return the pairs of two targets of one owner, ascending, each once, as first * size + second: int64 (m,)."""
    distinct = np.unique(owner * size + target)
    owner, target = np.divmod(distinct, size)
    counts = np.unique(owner, return_counts=True)[1]
    num_pairs = int((counts.astype(np.float64) ** 2).sum())
    need_memory(32 * num_pairs, f"{num_pairs:,} pairs of what is had together", "take a shorter horizon")
    each, starts = np.repeat(counts, counts), np.repeat(np.cumsum(counts) - counts, counts)
    first = np.repeat(np.arange(len(owner)), each)
    place = np.arange(len(first)) - np.repeat(np.cumsum(each) - each, each)
    second = starts[first] + place
    return np.unique((target[first] * size + target[second])[first != second])


def _is_link_table(links: Links, tables: Mapping[str, TableRows]) -> bool:
    """Whether a link is a row of a link table, whose edges join owner and target already."""
    return len(links.path.steps) == 1 and tables[links.path.table].config.is_link


def write_links(links: Links, tables: Mapping[str, TableRows], writer: DatasetWriter) -> RelationWriter | None:
    """Write the links as edges from owners to targets, where they are no link table's own."""
    if _is_link_table(links, tables):
        return None
    ends = (tables[links.path.owner], tables[links.path.target])
    with ExitStack() as stack:
        relation = RelationWriter(links.path.table, ends, writer, stack, timed=True)
        for some in blocks(len(links.entity), _ROWS):
            relation.write(links.entity[some], links.target[some], links.time[some], {})
    return relation


def describe_ranking(
    config: DatabaseConfig, links: Links, tables: Mapping[str, TableRows], unit: TimeUnit
) -> RankingTask:
    """Return the manifest's entry."""
    assert config.predict.horizon is not None
    path = links.path
    # The first foreign key of a link table is where its edges begin.
    reverse = _is_link_table(links, tables) and next(iter(tables[path.table].config.foreign)) == path.column
    ends = (path.target, path.owner) if reverse else (path.owner, path.target)
    return RankingTask(
        candidates=path.target,
        history=joined_name((ends[0], file_name(path.table), ends[1])),
        history_is_reversed=reverse,
        horizon=length_time(config.predict.horizon, unit, "dataset.predict.horizon"),
        new_only=config.predict.new_only,
        together=path.together,
    )


def tell_ranking(links: Links, tasks: Tasks, unit: TimeUnit) -> str:
    """Say what is recommended to whom, in a line."""
    assert tasks.links is not None
    oldest = time_text(int(links.time[0]), unit) if links.time[0] != ALWAYS else "always"
    return (
        f"{len(links.entity):,} links to {links.path.target} since {oldest}; {len(tasks.links.task):,} are to be "
        f"predicted of {int(np.count_nonzero(~np.isnan(tasks.label))):,} rows, and {tasks.links.without:,} rows "
        "without one are left out"
    )
