"""Which section `train` a recipe has: its model's `Config` says the family, and `SECTIONS` has the family's section."""

from __future__ import annotations

from configs.base import ComponentConfig
from configs.families.row_training import (
    FactorTrainConfig,
    KnowledgeTrainConfig,
    LayoutTrainConfig,
    MultiplexTrainConfig,
    TableTrainConfig,
)
from configs.training import RelationalTrainConfig, TrainBase, TrainConfig

_SECTIONS: tuple[type[TrainBase], ...] = (
    TrainConfig,
    RelationalTrainConfig,
    TableTrainConfig,
    KnowledgeTrainConfig,
    MultiplexTrainConfig,
    FactorTrainConfig,
    LayoutTrainConfig,
)
SECTIONS = {section.family: section for section in _SECTIONS}
"""The section `train` of each family."""


def train_section(model: type[ComponentConfig]) -> type[TrainBase]:
    """Return the section `train` of the recipes of a model, given by its `Config`."""
    return SECTIONS[getattr(model, "family", TrainConfig.family)]
