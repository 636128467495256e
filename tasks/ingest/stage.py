"""The ingest stage: any source to typed, checked, compressed Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from configs.base import ComponentConfig, cache_view
from configs.errors import RecipeError
from configs.registry import DATASETS
from configs.schema import Recipe
from tasks.sizes import disk_bytes, expected_counts, need_disk, refuse_excess_data
from tasks.stage import Parent, Stage, StageContext
from tasks.storage.manifests import DatasetManifest
from tasks.storage.source_digests import SourceDigests


class Dataset(Protocol):
    """A registered data set. Its `Config` is what a recipe's `dataset` section holds."""

    def __init__(self, config: ComponentConfig) -> None:
        """Cheap: nothing is read before `fingerprint` or `ingest`."""
        ...

    def fingerprint(self, digests: SourceDigests) -> dict[str, Any]:
        """Return what tells one state of the source from another: part of the cache key.

        Files count by their content (`digests.describe`) and by what names of theirs the output depends on, never by
        where they lie or when they were written. `plan` calls it too.
        """
        ...

    def ingest(self, context: StageContext) -> dict[str, Any]:
        """Write tables into `context.work` and return the fields of DatasetManifest.

        Raises:
            DataError: naming file, row and column.
            RecipeError: naming an option.
        """
        ...


def config(recipe: Recipe) -> dict[str, Any]:
    """Return the data set's options."""
    return {"dataset": cache_view(recipe.dataset)}


def source(recipe: Recipe, digests: SourceDigests) -> dict[str, Any]:
    """Return the fingerprint of the data set's source."""
    dataset: Dataset = DATASETS.create(recipe.dataset)
    return dataset.fingerprint(digests)


def build(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> dict[str, Any]:
    """Ingest the recipe's data set and refuse what no later stage could use."""
    refuse_too_large(recipe, context.work)
    dataset: Dataset = DATASETS.create(recipe.dataset)
    return checked_fields(recipe, dataset.ingest(context))


def refuse_too_large(recipe: Recipe, work: Path) -> None:
    """Refuse a data set, before it is read, that neither memory nor the disk of `work` can hold. Raises UserError."""
    refuse_excess_data(recipe)
    counts = expected_counts(recipe)
    if counts is not None:
        need_disk(work, disk_bytes("ingest", recipe, counts), "the data set")


def checked_fields(recipe: Recipe, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest's fields of what a data set ingested. Raises RecipeError where a split is empty."""
    splits = fields["splits"]
    empty = [split for split in ("train", "valid", "test") if not splits.get(split)]
    if empty:
        raise RecipeError(
            f"dataset {recipe.dataset.name}: the {' and '.join(empty)} split is empty; check the split's files, column "
            f"or shares (sizes: {splits})"
        )
    rows = sum(t.num_nodes for t in fields["node_types"]) + sum(t.num_edges for t in fields["edge_types"])
    return {"rows": rows, **fields}


STAGE: Stage[DatasetManifest] = Stage("ingest", 4, DatasetManifest, (), config, build, source=source)
