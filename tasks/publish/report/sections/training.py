"""The training: curves and speed."""

from __future__ import annotations

from tasks.publish.plots import run_plots
from tasks.publish.plots.figures import compact
from tasks.publish.report.parts import ReportedRun, ReportTable, Section
from tasks.publish.tracking.records import read_records
from tasks.storage.outcomes import RunResult, is_at_once

ORDER = 50


def section(run: ReportedRun) -> Section | None:
    """Say what was trained and how fast."""
    if "train" not in run.parents:
        return None
    training: RunResult = run.parents["train"].manifest
    at_once, epochs = is_at_once(training), f"{training.epochs_run}, the best was {training.best_epoch}"
    facts = [
        ("model", f"{training.model.get('name', '')}, {training.num_parameters:,} parameters"),
        ("ranks", f"{training.world_size} ({training.strategy})" if training.strategy else str(training.world_size)),
        ("epochs", "none: computed at once" if at_once else epochs),
        ("seed", str(training.seed)),
    ]
    if training.edges_per_second and not at_once:
        speed = f"{compact(training.seeds_per_second)} seeds/s, {compact(training.edges_per_second)} edges/s"
        facts.append(("speed", speed))
    elif training.seeds_per_second and not at_once:  # rows of tables, which have no layers to sample for
        facts.append(("speed", f"{compact(training.seeds_per_second)} samples/s"))
    if training.resumed_from_epoch or training.restarts:
        interruptions = f"resumed from epoch {training.resumed_from_epoch}, {training.restarts} restarts"
        facts.append(("interruptions", interruptions))
    records = read_records(run.parents["train"].folder / training.metrics_file)
    made = Section("Training", facts)
    if training.machines:
        rows = [
            (
                one.machine,
                one.ranks,
                f"{one.cpu_percent:.0f} %",
                *(f"{size / 1e6:,.0f} MB" for size in (one.peak_bytes, one.sent_bytes, one.fetched_bytes)),
            )
            for one in training.machines
        ]
        head = ("machine", "ranks", "CPU", "peak memory", "sent", "fetched")
        made.tables.append(ReportTable("Machines of the cluster; 100 % of CPU: one core.", head, rows, figures=4))
    made.draw(run_plots.loss_curves(records), "Loss")
    made.draw(run_plots.metric_curves(records, training.best_epoch), "Validation metrics")
    return made
