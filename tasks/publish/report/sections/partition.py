"""The partition: edge cut, balance and who is cut from whom."""

from __future__ import annotations

from tasks.publish.plots import run_plots
from tasks.publish.report.parts import ReportedRun, Section
from tasks.storage.manifests import PartitionManifest

ORDER = 40


def section(run: ReportedRun) -> Section | None:
    """Say how good the parts are; None where there is one."""
    if "partition" not in run.parents or run.parents["partition"].manifest.num_parts < 2:
        return None
    manifest: PartitionManifest = run.parents["partition"].manifest
    balance = f"largest part {manifest.node_balance:.3f} x the mean; training nodes {manifest.train_balance:.3f} x"
    facts = [
        ("partitioner", manifest.partitioner),
        ("parts", str(manifest.num_parts)),
        ("edge cut", f"{100 * manifest.edge_cut:.2f} % of the edges join two parts"),
        ("balance", balance),
    ]
    made = Section("Partition", facts)
    caption = "Edges between each pair of parts; the diagonal is within a part"
    made.draw(run_plots.cut_matrix(manifest.report), caption)
    made.draw(run_plots.part_sizes(manifest.report), "Nodes and training nodes of each part against the mean")
    return made
