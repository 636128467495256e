"""The sections `train` of models that are rows: of nodes, knowledge graphs, relations, layouts; `SECTIONS` has all."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from configs.base import ComponentConfig, ConfigModel
from configs.layout_options import LAYOUT
from configs.registry import LoaderSection, LossSection, ScheduleSection, StrategySection
from configs.training import RelationalTrainConfig, TrainBase, TrainConfig

_NAMED = ("loader", "loss", "schedule", "strategy")


class _TableOptions(ConfigModel):
    optimizer: ClassVar[Literal["sgd"]] = "sgd"  # all that the kernels of skip-gram know

    loader: LoaderSection = Field(default="walks", validate_default=True)
    """Where samples come from: a loader of pairs (`graphmill loaders`)."""
    samples: float | None = Field(default=None, gt=0, le=1e15)
    """Positive samples of the whole training; null: by the graph's size, said when the training begins."""
    learning_rate: float = Field(default=0.025, gt=0, le=1000)
    """Peak learning rate."""
    schedule: ScheduleSection = Field(default="linear", validate_default=True)
    """How the learning rate moves (`graphmill schedules`)."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """What the tables hold; in bfloat16 changes are rounded up or down by chance."""
    strategy: StrategySection = Field(default="block_grid", validate_default=True)
    """How workers share the tables (`graphmill strategies`)."""


class _UsualComponents(ConfigModel):
    """A section whose components are options of its family's usual ones where they have no name."""

    @model_validator(mode="before")
    @classmethod
    def _options_are_of_the_usual_component(cls, data: Any) -> Any:
        """Take `strategy: {blocks: 4}` for options of this family's strategy: without a name others' would be meant."""
        if not isinstance(data, dict):
            return data
        unnamed = [key for key in _NAMED if key in cls.model_fields and isinstance(data.get(key), dict)]
        return {**data, **{key: {"name": cls.model_fields[key].default, **data[key]} for key in unnamed}}


class TableTrainConfig(TrainBase, _TableOptions, _UsualComponents):
    """Training of tables of rows by samples of pairs."""

    ranks_share_files: ClassVar[bool] = True
    family: ClassVar[str] = "table"
    auto_takes_gpu: ClassVar[bool] = False


class PlateauConfig(ConfigModel):
    """The learning rate falls where validation does not get better."""

    patience: int = Field(default=2, ge=1, le=1000)
    """Validations in a row without a better metric after which it falls."""
    factor: float = Field(default=0.5, gt=0, lt=1)
    """What it is multiplied by."""


class _KnowledgeOptions(ConfigModel):
    loader: LoaderSection = Field(default="triples", validate_default=True)
    """What true entities are compared with: a loader of triples (`graphmill loaders`)."""
    loss: LossSection = Field(default="softmax", validate_default=True)
    """What scores are to be like (`graphmill losses`)."""
    epochs: int = Field(default=50, ge=1, le=10_000_000)
    """Passes over the training triples."""
    learning_rate: float = Field(default=0.1, gt=0, le=1000)
    """Peak learning rate."""
    schedule: ScheduleSection = Field(default="constant", validate_default=True)
    """How the learning rate moves (`graphmill schedules`)."""
    plateau: PlateauConfig | None = None
    """Let it fall beside that where validation does not get better; null: never."""
    optimizer: Literal["sgd", "momentum", "adagrad", "elementwise_adagrad", "adam"] = "adagrad"
    """How a row moves: by its gradient, by its running mean, or scaled by what the row has seen so far; by
    elementwise_adagrad each number by itself, for twice the memory."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """What entities' rows are held in; in bfloat16 changes are rounded up or down by chance."""
    products: Literal["float32", "bfloat16"] = "float32"
    """What products of queries with entities are computed in, of scores that are dot products; sums are float32.
    bfloat16 is up to five times as fast where the processor has it (AMX, AVX-512 BF16) and changes nothing elsewhere.
    Validation and evaluation are float32 always."""
    strategy: StrategySection = Field(default="block_grid", validate_default=True)
    """How workers share the rows (`graphmill strategies`)."""
    eval_every: int = Field(default=5, ge=1, le=10_000_000)
    """Epochs between validations; the best one's rows are kept."""
    eval_triples: int | None = Field(default=5000, ge=1, le=1_000_000_000)
    """Validation triples that are ranked while training, the same ones each time; of more, so many are drawn. null:
    all."""
    patience: int | None = Field(default=None, ge=1, le=1_000_000)
    """Stop after so many validations without a better metric; null: never."""


class KnowledgeTrainConfig(TrainBase, _KnowledgeOptions, _UsualComponents):
    """Training of a knowledge graph's rows by triples."""

    ranks_share_files: ClassVar[bool] = True
    family: ClassVar[str] = "knowledge"
    auto_takes_gpu: ClassVar[bool] = False

    @model_validator(mode="after")
    def _loss_fits(self) -> KnowledgeTrainConfig:
        against_all = getattr(self.loader, "against_all", False)
        if "triple" not in getattr(self.loss, "label_types", ("triple",)):
            raise ValueError(f"loss={self.loss.name} is not for triples; take softmax, logistic, margin or bpr")
        if against_all and not getattr(self.loss, "against_all", True):
            raise ValueError(
                f"loss={self.loss.name} compares with drawn entities, and loader={self.loader.name} draws none; take "
                "loss=softmax or loss=logistic, or loader=triples"
            )
        usual = type(self.loss).model_fields
        unused = [
            name for name in getattr(self.loss, "of_drawn", ()) if getattr(self.loss, name) != usual[name].default
        ]
        if against_all and unused:
            raise ValueError(
                f"loss={self.loss.name}: {' and '.join(unused)} weigh drawn entities, and loader={self.loader.name} "
                "draws none; leave them out, or take loader=triples"
            )
        if against_all and self.num_ranks > 1:
            raise ValueError(
                f"loader={self.loader.name} compares with all entities in one process: set num_ranks=1, or take "
                "loader=triples"
            )
        if against_all and (getattr(self.strategy, "blocks", None) or 1) > 1:
            raise ValueError(
                f"loader={self.loader.name} compares with all entities: leave strategy.blocks out, or take "
                "loader=triples"
            )
        return self


class _MultiplexOptions(ConfigModel):
    loader: LoaderSection = Field(default="walks", validate_default=True)
    """Walks, each within one relation, and what of them is near."""
    walks: int = Field(default=20, ge=1, le=1_000_000)
    """Walks of an epoch from each node of each relation."""
    epochs: int = Field(default=10, ge=1, le=1_000_000)
    """Epochs at most; the best one's vectors are kept."""
    batch_size: int = Field(default=65_536, ge=1, le=100_000_000)
    """Pairs whose nodes' vectors are computed once, about; their gradients make one step."""
    learning_rate: float = Field(default=0.01, gt=0, le=1000)
    """Adam's, of what vectors are made of."""
    pair_rate: float = Field(default=0.025, gt=0, le=1000)
    """Of skip-gram's steps from pair to pair, by which contexts learn."""
    patience: int | None = Field(default=2, ge=1, le=1_000_000)
    """Stop after so many epochs without a better validation metric; null: never."""


class MultiplexTrainConfig(TrainBase, _MultiplexOptions, _UsualComponents):
    """Training of vectors by relation, in one process on the CPU."""

    family: ClassVar[str] = "multiplex"
    auto_takes_gpu: ClassVar[bool] = False

    @model_validator(mode="after")
    def _one_process(self) -> MultiplexTrainConfig:
        if self.num_ranks > 1:
            raise ValueError("vectors by relation are learnt by one process: set num_ranks=1")
        if self.device == "cuda":
            raise ValueError("vectors by relation are learnt on the CPU: set device=cpu")
        return self


class _LayoutOptions(ConfigModel):
    # The kernels of layouts know these alone.
    optimizer: ClassVar[Literal["sgd"]] = "sgd"
    precision: ClassVar[Literal["float32"]] = "float32"

    loader: LoaderSection = Field(default="edge_passes", validate_default=True)
    """Where samples come from: edges, in proportion to their weights; a graph's own count less where ends have many."""
    samples: float | None = Field(default=None, gt=0, le=1e15)
    """Samples of the whole training; null: by the model and the number of points, said when the training begins."""
    learning_rate: float | None = Field(default=None, gt=0, le=1e6)
    """Peak learning rate; null: the model's usual one (`graphmill models NAME`)."""
    schedule: ScheduleSection = Field(default="linear", validate_default=True)
    """How the learning rate moves (`graphmill schedules`)."""
    start: Literal["auto", "pca", "pivots"] = "auto"
    """Where points begin: pca: at the first components of their vectors; pivots: by distances in edges to some nodes.
    auto: pca where neighbours of vectors are the edges, else pivots."""
    strategy: StrategySection = Field(default="block_grid", validate_default=True)
    """How workers share the points (`graphmill strategies`)."""


class LayoutTrainConfig(TrainBase, _LayoutOptions, _UsualComponents):
    """Training of a layout: points in two or three dimensions, by samples of edges."""

    ranks_share_files: ClassVar[bool] = True
    family: ClassVar[str] = LAYOUT
    auto_takes_gpu: ClassVar[bool] = False


BlockTrainConfig = TableTrainConfig | KnowledgeTrainConfig | LayoutTrainConfig
"""Trainings whose rows lie in blocks."""


class FactorTrainConfig(TrainBase):
    """Vectors that are computed at once, by one process: there is nothing to choose but the threads."""

    family: ClassVar[str] = "factors"
    auto_takes_gpu: ClassVar[bool] = False

    @model_validator(mode="after")
    def _one_process(self) -> FactorTrainConfig:
        if self.num_ranks > 1:
            raise ValueError("a factorisation is one process: set num_ranks=1, and threads")
        return self


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
