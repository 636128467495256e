"""The loader that fits the task."""

from __future__ import annotations

from configs.registry import LOADERS
from tasks.train.loaders.base import Loader, TrainingData
from tasks.train.loaders.configs import AutoConfig


@LOADERS.register("auto")
class AutoLoader:
    """Makes the loader that its options resolve to."""

    def __new__(cls, config: AutoConfig, data: TrainingData) -> Loader:  # type: ignore[misc]
        """Return another loader."""
        made: Loader = LOADERS.create(config.resolve(data.store.manifest), data)
        return made
