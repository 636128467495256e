"""Where time and memory went."""

from __future__ import annotations

from tasks.publish.plots.figures import compact
from tasks.publish.report.parts import ReportedRun, ReportTable, Section
from tasks.storage.outcomes import is_at_once, rows_text

ORDER = 90


def section(run: ReportedRun) -> Section | None:
    """Say what each stage took."""
    manifests = {name: parent.manifest for name, parent in run.parents.items()}
    if not manifests:
        return None
    rows = [
        (
            name,
            f"{one.seconds:.1f}",
            f"{one.peak_bytes / 1e6:,.0f} MB",
            rows_text(name, one.rows, at_once=is_at_once(one)),
            f"{compact(one.rows / one.seconds)}/s" if one.rows and one.seconds > 0 else "",
            f"{one.num_bytes / 1e6:,.1f} MB",
            one.created_at,
        )
        for name, one in manifests.items()
    ]
    caption = "As measured when each artifact was made; a stage found in the cache took no time in this run."
    head = ("stage", "seconds", "peak memory", "rows", "speed", "on disk", "made")
    return Section("Where time and memory went", tables=[ReportTable(caption, head, rows, figures=6)])
