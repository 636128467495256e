"""Recommendations: what lists of other lengths are worth, and how much of what there is they recommend."""

from __future__ import annotations

from tasks.publish.report.parts import ReportedRun, ReportTable, Section

ORDER = 61
_MEASURES = ("recall", "precision", "hits")


def section(run: ReportedRun) -> Section | None:
    """Say what the lists of a ranking hold."""
    report = run.parents["evaluate"].manifest.report if "evaluate" in run.parents else {}
    if "ranked" not in report:
        return None
    ranked = report["ranked"]
    facts = [
        ("right for a row", f"{ranked['right']:.2f} on average"),
        ("place of the first that is right", f"{ranked['median_place']:,.0f} (median)"),
    ]
    if ranked.get("candidates"):
        share = 100 * ranked["recommended"] / ranked["candidates"]
        words = f"{ranked['recommended']:,} of {ranked['candidates']:,} ({share:.1f} %) stand in some list"
        frequent = f"the ten most frequent have {100 * ranked['share_of_ten']:.1f} %"
        facts.append(("recommended", f"{words}; {frequent}"))
    rows = [(str(row["k"]), *(f"{row[name]:.4f}" for name in _MEASURES)) for row in ranked["lengths"]]
    table = ReportTable(f"Lists of other lengths ({report.get('split', '')})", ("K", *_MEASURES), rows, figures=4)
    return Section("Recommendations", facts, [table])
