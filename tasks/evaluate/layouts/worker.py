"""What the evaluation of a layout runs in a process of its own: how good it is, and the table of its points."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasks.supervise import finish_job, report_progress


@dataclass(frozen=True, kw_only=True)
class LayoutJob:
    """What is evaluated, and where."""

    checkpoint: Path
    graph: Path
    """Folder of the partition's artifact."""
    dataset: Path
    """Folder of the ingest artifact."""
    work: Path
    seed: int
    threads: int


def evaluate(job: LayoutJob) -> dict[str, Any]:
    """Measure a layout and write its points; return the fields of EvalReport."""
    from tasks.evaluate.layouts.columns import point_columns
    from tasks.evaluate.layouts.measured import measured
    from tasks.evaluate.layouts.points_file import LAYOUT_FILE, write_points
    from tasks.processes.device import use_threads
    from tasks.storage.dataset_store import DatasetStore
    from tasks.storage.graph_store import GraphStore
    from tasks.storage.ids import IdMap
    from tasks.train.state.checkpoint import load_model

    use_threads(job.threads)
    store, dataset = GraphStore.open(job.graph), DatasetStore.open(job.dataset)
    table = load_model(job.checkpoint).table
    assert table is not None
    points = table.numpy()
    report_progress(0, 2, "steps", "measuring")
    found = measured(points, store, job.seed, job.threads)
    report_progress(1, 2, "steps", "points")
    nodes = np.arange(store.manifest.num_nodes)
    columns = point_columns(store, dataset, IdMap(store, dataset), nodes)
    write_points(job.work / LAYOUT_FILE, points, columns)
    return {
        "evaluator": "layout",
        "metric": found.metric,
        "metrics": {"all": found.values},
        "layout": LAYOUT_FILE,
        "report": {"higher_is_better": True, "telling_rows": {}, "intervals": {}, "notes": found.notes},
        "rows": len(points),
    }


def main(job_path: Path) -> int:
    """Evaluate."""
    return finish_job(job_path, LayoutJob, evaluate)
