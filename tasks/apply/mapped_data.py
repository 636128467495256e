"""What a layout was made of, found again when new points are placed in it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from configs.errors import IntegrityError, RecipeError
from tasks.apply.model.published import Published
from tasks.storage.artifacts import ArtifactStore
from tasks.storage.home import Home
from tasks.storage.manifests import DatasetManifest, PartitionManifest


@dataclass(frozen=True)
class MappedData:
    """What a layout was made of."""

    graph: Path
    """Folder of the partition's artifact."""
    dataset: Path
    """Folder of the ingest artifact."""

    @classmethod
    def of(cls, published: Published, home: Home) -> MappedData:
        """Find it in the home. Raises RecipeError: it is no longer there."""
        store, folders = ArtifactStore(home), []
        for stage, kind in (("partition", PartitionManifest), ("ingest", DatasetManifest)):
            made, manifest = published.lineage[stage], None
            with suppress(IntegrityError):
                manifest = store.load(stage, str(made["key"]), kind)
            if manifest is None or manifest.digest != made["digest"]:
                raise RecipeError(
                    f"new points are placed by what {published.name} is a layout of, and this home has that no "
                    "more; run its recipe again, or lay out all of the data anew"
                )
            folders.append(store.folder(stage, str(made["key"])))
        return cls(*folders)
