"""What a snapshot holds, and how it differs from the one before it."""

from __future__ import annotations

from tasks.publish import snapshots
from tasks.publish.plots import run_plots
from tasks.publish.report.parts import ReportedRun, Section

ORDER = 20


def section(run: ReportedRun) -> Section | None:
    """Say how the graph has grown; None without a snapshot."""
    summary = run.snapshot
    if summary is None:
        return None
    before = summary["previous"]
    title = f"As of {summary['snapshot']['as_of']}" + (f", against {before['as_of']}" if before else "")
    made = Section(title, snapshots.facts(summary))
    if before:
        made.draw(run_plots.label_picture(before, summary["snapshot"]), "Labels of both snapshots")
    return made
