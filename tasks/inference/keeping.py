"""Keep what a model computes of a graph, and take from an earlier one's what is the same (`KeptLayers`, `KeptRows`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from configs.errors import RecipeError
from models.base import GraphModel
from models.relational.base import RelationalModel
from tasks.inference.former_layers import FormerLayers, KeepJob
from tasks.inference.kept_layers import AuditError, KeptLayers
from tasks.inference.kept_rows import KeptRows

if TYPE_CHECKING:
    from tasks.inference.opened import Opened

Kept = KeptLayers | KeptRows


def keep_outputs(model: GraphModel, opened: Opened, job: KeepJob, scratch: Path) -> Kept:
    """Compute all outputs into the job's folder. Inside of `evaluating`.

    Raises RecipeError: the model's vectors are not those of layers, one after the other.
    """
    has_layers = model.table is None and model.is_layered and len(model.layers)
    if not isinstance(model, RelationalModel) and not has_layers:
        raise RecipeError(
            f"--keep-layers: {model.config.name} has no layers that are computed for all nodes, one after the other"
        )
    if opened.store.manifest.ranking:
        raise RecipeError(
            "--keep-layers: a model that ranks rows has none of its own for what it predicts; leave it out"
        )
    try:
        return _keep(model, opened, job, job.former, scratch)
    except AuditError as error:
        kept = _keep(model, opened, job, None, scratch)
        kept.told.warning = (
            f"{error}: this model's rows follow from others computed beside them, so nothing was taken over, and "
            "--keep-layers brings it nothing"
        )
        return kept


def _keep(model: GraphModel, opened: Opened, job: KeepJob, former: FormerLayers | None, scratch: Path) -> Kept:
    store = opened.store
    if isinstance(model, RelationalModel):
        rows = opened.ids.nodes_of_type(store.manifest.target_type)
        place = None if former is None else former.layers
        kept_rows = KeptRows(store, rows, job.folder, place, is_complete=job.is_complete)
        kept_rows.vectors(model, rows[:0])
        return kept_rows
    kept = KeptLayers(store, job.folder, scratch, is_complete=job.is_complete)
    if former is not None and not job.is_complete:
        kept.compare(model, opened.dataset, former)
    kept.vectors(model)
    return kept
