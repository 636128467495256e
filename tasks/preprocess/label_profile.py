"""What a snapshot's report compares with the one before: counts that mean the same in both.

No moment stands here: two snapshots with the same content have the same digest, so that a night on which nothing is new
trains nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks.arrays import Array, blocks
from tasks.storage.manifests import DatasetManifest

_CHUNK_ROWS = 1 << 20
_QUANTILES = 101


def label_profile(label: Array, manifest: DatasetManifest) -> dict[str, Any]:
    """Return the distribution of labels, int64 (n,) or float32 (n, T), of nodes or graphs that exist.

    Returns:
        `kind` and `rows` (labelled ones), with `counts` of classes (kind `classes`), or of the positives of each label
        column (`positives`), or `values`, the 0th to 100th percentile of the first column (`percentiles`).
    """
    if manifest.label_type.is_number or manifest.ranking is not None:  # of a ranking: how many candidates are right
        values = np.asarray(label[:, 0], np.float64)
        values = values[~np.isnan(values)]
        shown = np.quantile(values, np.linspace(0, 1, _QUANTILES)) if len(values) else np.empty(0)
        return {"kind": "percentiles", "rows": len(values), "values": shown.tolist()}
    single = label.ndim == 1 or manifest.num_tasks == 1
    counts, rows = np.zeros(max(2, manifest.num_classes) if single else label.shape[1], np.int64), 0
    for some in blocks(len(label), _CHUNK_ROWS):
        part = np.asarray(label[some])
        labelled = part >= 0  # False for NaN
        rows += int(np.count_nonzero(labelled if labelled.ndim == 1 else labelled.any(1)))
        if single:
            counts += np.bincount(part[labelled].astype(np.int64), minlength=len(counts))
        else:
            counts += np.count_nonzero(part > 0, axis=0)
    return {"kind": "classes" if single else "positives", "rows": rows, "counts": counts.tolist()}
