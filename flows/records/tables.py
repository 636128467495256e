"""What is shown of a run's stages and metrics: tables, made once for the terminal and for Prefect's pages."""

from __future__ import annotations

from flows.records.run_record import RunRecord
from flows.terminal.console import TextTable, format_bytes, format_seconds, table
from tasks.calls import StageRecord
from tasks.publish.facts import metric_names, score_rows
from tasks.storage.outcomes import rows_text


def stage_text(stage: StageRecord) -> str:
    """Say in a line what a stage did."""
    size = format_bytes(stage.bytes)
    if stage.status == "cached":
        return f"cached  {size}"
    parts = [f"ran     {format_seconds(stage.seconds)}", f"peak {format_bytes(stage.peak_bytes)}"]
    return ", ".join([*parts, *([f"{stage.rows:,} rows"] if stage.rows else []), size])


def stage_table(record: RunRecord) -> TextTable:
    """Return a line a stage: what it took, and what it left."""
    figures = ("time", "peak memory", "rows", "size")
    shown = table("stage", "", *figures, right=figures)
    for name, stage in record.stages.items():
        took, memory, size = format_seconds(stage.seconds), format_bytes(stage.peak_bytes), format_bytes(stage.bytes)
        shown.add_row(name, stage.status, took, memory, stage_rows(record, name), size)
    return shown


def stage_rows(record: RunRecord, name: str) -> str:
    """Return how many rows a stage went through, with what they are."""
    train = record.config.get("train")
    at_once = isinstance(train, dict) and not {"strategy", "epochs"} & set(train)
    return rows_text(name, record.stages[name].rows, at_once=at_once)


def metric_table(
    head: str, metrics: dict[str, dict[str, float]], controls: dict[str, dict[str, dict[str, float]]]
) -> TextTable:
    """Return a line a split, and below it one for each control on that split; a column a metric."""
    rows = score_rows(metrics, controls)
    names = metric_names(rows)
    shown = table(head, *names, right=names)
    for row in rows:
        shown.add_row(row.label, *row.texts(names))
    return shown


def label_share_table(reported: dict[str, float]) -> TextTable:
    """Return F1 of nodes' vectors by the share of labels that are known, by which papers compare vectors."""
    shares = [name.partition("@")[2] for name in reported if name.startswith("f1_micro@")]
    names = [f"{100 * float(share):g} %" for share in shares]
    shown = table("labels known", *names, right=names)
    for average in ("micro", "macro") if shares else ():
        shown.add_row(f"F1, {average}", *(f"{reported[f'f1_{average}@{share}']:.4f}" for share in shares))
    return shown
