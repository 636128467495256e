"""Ranked triples: by relation and kind, the hardest ones, and without what training never saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.publish.plots import eval_plots
from tasks.publish.report.parts import ReportedRun, ReportTable, Section

ORDER = 62
_FEW, _HARDEST = 5, 15
_MEASURES = {
    "mrr": "MRR",
    "mrr_head": "which head",
    "mrr_tail": "which tail",
    "hits@1": "Hits@1",
    "hits@10": "Hits@10",
    "hits@10_head": "which head",
    "hits@10_tail": "which tail",
}
"""Columns of tables of relations: those of an end stand behind those of both."""


def section(run: ReportedRun) -> Section | None:
    """Say how triples were ranked."""
    report = run.parents["evaluate"].manifest.report if "evaluate" in run.parents else {}
    if "triples" not in report:
        return None
    ranked, split = report["triples"], report.get("split", "")
    made, unseen = Section("Triples in detail"), ranked["unseen"]
    if unseen["entities"]:
        seen_by = f"{unseen['entities']:,}; {unseen['triples']:,} triples have one"
        made.facts.append(("entities that training never saw", seen_by))
    if "metrics" in unseen:
        texts = ", ".join(f"{name} {unseen['metrics'][name]:.4f}" for name in ("mrr", "hits@1", "hits@3", "hits@10"))
        made.facts.append(("without them", texts))
    for caption, canvas in eval_plots.of_triples(ranked, split):
        made.draw(canvas, caption)
    if len(ranked["categories"]) > 1:
        made.tables.append(_ranks_table(f"Kinds of relations ({split})", ("category",), ranked["categories"]))
    hardest = sorted((row for row in ranked["relations"] if row["triples"] >= _FEW), key=lambda row: row["mrr"])
    if hardest:
        caption = f"The hardest relations ({split}), of those with {_FEW} triples or more"
        made.tables.append(_ranks_table(caption, ("relation", "category"), hardest[:_HARDEST]))
    return made


def _ranks_table(caption: str, names: tuple[str, ...], relations: Sequence[Mapping[str, Any]]) -> ReportTable:
    rows = [
        (*(row[name] for name in names), f"{row['triples']:,}", *(f"{row[key]:.4f}" for key in _MEASURES))
        for row in relations
    ]
    heads = tuple("kind" if name == "category" else name for name in names)
    return ReportTable(caption, (*heads, "triples", *_MEASURES.values()), rows, figures=1 + len(_MEASURES))
