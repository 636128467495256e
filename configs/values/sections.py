"""Places in a recipe where a component stands: whatever is written there becomes the component's `Config`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, SerializeAsAny

from configs import registry
from configs.base import ComponentConfig

DatasetSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(registry.DATASETS.config)]
TransformSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(registry.TRANSFORMS.config)]
PartitionerSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(registry.PARTITIONERS.config)]
ModelSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(registry.MODELS.config)]
LoaderSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(registry.LOADERS.config)]
ScheduleSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(registry.SCHEDULES.config)]
EmbeddingsSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(registry.EMBEDDINGS.config)]
StrategySection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(registry.STRATEGIES.config)]
TripleLossSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(registry.TRIPLE_LOSSES.config)]
EvaluatorSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(registry.EVALUATORS.config)]
