"""The recipe: everything that one job is, in one frozen object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, WithJsonSchema, field_validator, model_validator

from configs import moved, registry
from configs.base import ComponentConfig, ConfigModel, StrTuple
from configs.moments import normalise_as_of

STAGES = ("ingest", "preprocess", "components", "partition", "train", "evaluate", "publish")

DatasetSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(registry.DATASETS.config)]
TransformSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(registry.TRANSFORMS.config)]
PartitionerSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(registry.PARTITIONERS.config)]
ModelSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(registry.MODELS.config)]
LoaderSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(registry.LOADERS.config)]
ScheduleSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(registry.SCHEDULES.config)]
EmbeddingsSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(registry.EMBEDDINGS.config)]
StrategySection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(registry.STRATEGIES.config)]
EvaluatorSection = Annotated[SerializeAsAny[ComponentConfig], BeforeValidator(registry.EVALUATORS.config)]


# YAML makes whole numbers and dates of some moments.
AsOf = Annotated[str, BeforeValidator(normalise_as_of), WithJsonSchema({"type": ["string", "integer"]})]


class SnapshotConfig(ConfigModel):
    """The data as of a moment: only what existed then."""

    as_of: AsOf | None = None
    """Moment: `2023`, `2023-06`, `2023-06-30` (each means its end), a time stamp (UTC unless it says otherwise), or a
    whole number in the unit of the data's times. Nodes and edges that are newer do not exist. null: everything."""
    unit: Literal["auto", "years", "seconds", "milliseconds", "number"] = "auto"
    """What the data's times count; auto: years in OGB's data, seconds in columns of dates and time stamps, else numbers
    that compare with a whole number alone."""
    split: Literal["time", "keep"] = "time"
    """time: what exists is dealt out by its time, the oldest to train and the newest to test, equal times by a seeded
    hash; keep: the data set's own split, as far as it exists."""
    train: float = Field(default=0.8, gt=0, lt=1)
    """Split by time: share of the training split."""
    valid: float = Field(default=0.1, gt=0, lt=1)
    """Split by time: share of the validation split."""
    test: float = Field(default=0.1, gt=0, lt=1)
    """Split by time: share of the test split."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Split by time: seed of the hash that orders equal times, and of link tasks' negatives."""
    warm_start: bool = False
    """Begin with the best weights of the newest earlier snapshot of this recipe, where there is one and shapes fit."""

    @model_validator(mode="after")
    def _shares_of_one(self) -> SnapshotConfig:
        if abs(self.train + self.valid + self.test - 1) > 1e-6:
            raise ValueError(
                f"train, valid and test are shares of 1; they add up to {self.train + self.valid + self.test:g}"
            )
        return self


class PreprocessConfig(ConfigModel):
    """Parquet to a graph in memory-mapped arrays."""

    symmetrize: bool = True
    """Add the reverse of every edge (message passing then goes both ways)."""
    deduplicate: bool = True
    """Merge parallel edges."""
    merge_weights: Literal["sum", "max", "first"] = "sum"
    """How the weights of merged parallel edges combine."""
    self_loops: Literal["remove", "keep", "add"] = "remove"
    """Drop self-loops, leave them as they are, or give every node exactly one."""
    transforms: tuple[TransformSection, ...] = ()
    """Feature transforms in order, each fitted on the training split only (`graphmill transforms`)."""
    feature_dtype: Literal["float32", "float16"] = "float32"
    """How features are stored; float16 halves disk and memory, models compute in float32."""
    runner: Literal["process", "thread", "dask", "ray"] = "process"
    """Prefect task runner over shards; dask and ray are optional extras for many machines."""
    workers: int = Field(default=0, ge=0, le=4096)
    """Processes over shards; 0: one a core."""

    runtime_fields: ClassVar[frozenset[str]] = frozenset({"runner", "workers"})


class ComponentsConfig(ConfigModel):
    """Which weakly connected components stay."""

    keep: str = Field(default="all", pattern=r"^(all|largest|min_size=[1-9][0-9]*|top_k=[1-9][0-9]*)$")
    """`all`, `largest`, `min_size=K` (components of at least K nodes) or `top_k=K` (the K largest)."""


class SelfTrainingConfig(ConfigModel):
    """Several trainings in a row: each learns as well from what the one before it is sure of."""

    rounds: int = Field(default=1, ge=1)
    """Trainings after the first, each with as many epochs."""
    min_probability: float = Field(default=0.9, gt=0, lt=1)
    """Probability from which a prediction counts as a label."""


class TrainConfig(ConfigModel):
    """The training loop."""

    loader: LoaderSection = Field(default="auto", validate_default=True)
    """How batches are made (`graphmill loaders`)."""
    epochs: int = Field(default=20, ge=1, le=10_000_000)
    """Passes over the training split."""
    accumulate_steps: int = Field(default=1, ge=1)
    """Batches whose gradients are averaged before the optimizer steps."""
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    """Optimizer of the dense parameters."""
    learning_rate: float = Field(default=0.003, gt=0, le=1e30)
    """Peak learning rate on one rank."""
    lr_scaling: Literal["none", "linear", "sqrt"] = "none"
    """How the learning rate grows with the number of ranks."""
    weight_decay: float = Field(default=0.0, ge=0, le=1000)
    """L2 penalty (decoupled with adamw)."""
    schedule: ScheduleSection = Field(default="constant", validate_default=True)
    """How the learning rate moves (`graphmill schedules`)."""
    clip_norm: float | None = Field(default=None, gt=0)
    """Clip the gradient's global norm to this."""
    patience: int | None = Field(default=None, ge=1)
    """Stop after so many evaluations without a better validation metric; null: never."""
    eval_every: int = Field(default=1, ge=1)
    """Epochs between validations."""
    checkpoint_every: int = Field(default=1, ge=1)
    """Epochs between checkpoints; a killed run resumes from the last one."""
    checkpoint_minutes: float = Field(default=10.0, gt=0)
    """Checkpoint within an epoch too when the last one is so many minutes old."""
    num_ranks: int = Field(default=1, ge=1, le=4096)
    """Processes on this machine, one device each; more than one runs DistributedDataParallel under torchrun."""
    num_machines: int = Field(default=1, ge=1, le=4096)
    """Machines in the job; each runs the same command."""
    machine_rank: int = Field(default=0, ge=0)
    """This machine's number."""
    rendezvous: str | None = None
    """host:port of machine 0 (needed when num_machines > 1)."""
    shared_home: bool = True
    """Several machines: all see one home under one path, and those after machine 0 lend it their ranks; false: each has
    a home of its own, where it prepares the graph and keeps a copy of the outcome."""
    strategy: StrategySection = Field(default="data_parallel", validate_default=True)
    """How ranks share the work (`graphmill strategies`)."""
    self_training: SelfTrainingConfig | None = None
    """Train again on confident predictions for unlabelled nodes; null: once."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the model trains; auto takes a GPU where there is one."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """What layers compute and store in; weights stay float32. float16 scales its gradients and needs a GPU."""
    embeddings: EmbeddingsSection = Field(default="dense", validate_default=True)
    """Where learnable node embeddings of graphs without features live (`graphmill embeddings`)."""
    prefetch: int = Field(default=2, ge=0, le=4096)
    """Batches prepared ahead by background threads, in memory; 0: by the training itself, when it needs them."""
    sampling_threads: int = Field(default=1, ge=1, le=4096)
    """Background threads that prepare batches; no more than `prefetch`."""
    threads: int = Field(default=0, ge=0, le=4096)
    """CPU threads a rank; 0: this machine's cores divided by its ranks. Sums are rounded by how many threads take them,
    so another number trains anew; several machines need one that is said."""
    max_restarts: int = Field(default=2, ge=0)
    """How often a job whose rank died is started again from its last checkpoint."""

    moved_keys: ClassVar[Mapping[str, str]] = moved.TRAIN

    runtime_fields: ClassVar[frozenset[str]] = frozenset(
        {
            "machine_rank",
            "rendezvous",
            "shared_home",
            "prefetch",
            "sampling_threads",
            "max_restarts",
            "checkpoint_every",
            "checkpoint_minutes",
        }
    )

    @model_validator(mode="after")
    def _threads_have_work(self) -> TrainConfig:
        if self.sampling_threads > max(1, self.prefetch):
            raise ValueError(
                f"sampling_threads={self.sampling_threads} cannot all work with prefetch={self.prefetch}, for each "
                f"prepares one batch at a time; set prefetch to {self.sampling_threads} or more"
            )
        return self

    @model_validator(mode="after")
    def _machines_meet(self) -> TrainConfig:
        if self.num_machines > 1 and not self.rendezvous:
            raise ValueError("num_machines > 1 needs rendezvous=host:port of machine 0")
        if self.num_machines > 1 and not self.threads:
            raise ValueError(
                "num_machines > 1 needs threads, the CPU threads of a rank, the same on all machines: the number is "
                "part of what decides the result, and machines may have unlike ones"
            )
        if self.machine_rank >= self.num_machines:
            raise ValueError(f"machine_rank {self.machine_rank} is not below num_machines {self.num_machines}")
        return self


class EvaluateConfig(ConfigModel):
    """What is measured, and on what."""

    evaluator: EvaluatorSection = Field(default="auto", validate_default=True)
    """Metric; auto: the data set's own, OGB's evaluator for OGB data (`graphmill evaluators`)."""
    splits: StrTuple = ("valid", "test")
    """Splits to report."""
    batch_size: int = Field(default=16384, ge=1)
    """Nodes, edges or graphs at a time; changes memory and time, and the last bits of scores."""
    predictions: bool = True
    """Write predictions as Parquet under the users' own ids."""

    @field_validator("splits")
    @classmethod
    def _known_splits(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = set(value) - {"train", "valid", "test"}
        if unknown or not value:
            raise ValueError(f"splits are train, valid and test, not {', '.join(sorted(unknown)) or 'none'}")
        return value


class TrackingConfig(ConfigModel):
    """MLflow and the model registry."""

    experiment: str = Field(default="graphmill", pattern=r"^[^\x00-\x1f]+$", max_length=250)
    """MLflow experiment."""
    model_name: str | None = Field(default=None, pattern=r"^[^/:@'\"\x00-\x1f]+$", max_length=250)
    """Name in the model registry; null: the recipe's name."""
    gate_metric: str | None = None
    """Metric that decides who is champion, as `valid/metric`; null: the evaluator's."""
    system_metrics: bool = True
    """Log the use of CPU, memory, disk, network and GPU while training."""

    @field_validator("gate_metric")
    @classmethod
    def _on_validation_rows(cls, value: str | None) -> str | None:
        split, _, name = (value or "valid/metric").partition("/")
        if split != "valid" or not name:
            raise ValueError(
                f"{value} is not of the form valid/METRIC: the champion is chosen on the validation split alone, for a "
                "test split that chooses models says nothing about them any more; leave it out: the evaluator's metric"
            )
        return value


class Recipe(ConfigModel):
    """One job from source data to a registered model."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    """Name of the job: runs, reports and the registered model carry it."""
    description: str = ""
    """What it is for, in one line."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Seed of everything that is random in training; splits and generated data have their own."""
    dataset: DatasetSection
    """Where the graph comes from (`graphmill datasets`)."""
    snapshot: SnapshotConfig = SnapshotConfig()
    """As of when."""
    preprocess: PreprocessConfig = PreprocessConfig()
    """Edges and features."""
    components: ComponentsConfig = ComponentsConfig()
    """Filter by connected component."""
    partition: PartitionerSection = Field(default="auto", validate_default=True)
    """How the graph is split (`graphmill partitioners`)."""
    model: ModelSection
    """The model (`graphmill models`)."""
    train: TrainConfig = TrainConfig.model_construct()
    """The training loop."""
    evaluate: EvaluateConfig = EvaluateConfig.model_construct()
    """Metrics and predictions."""
    tracking: TrackingConfig = TrackingConfig()
    """MLflow."""

    @field_validator("train", "evaluate", mode="before")
    @classmethod
    def _fill_defaults(cls, value: Any) -> Any:
        # Sections that hold components are filled when a recipe is read: filling them at import would import torch.
        return value.model_dump(exclude_unset=True) if isinstance(value, ConfigModel) else value

    @model_validator(mode="after")
    def _model_fits(self) -> Recipe:
        self.model.check_recipe(self)
        return self

    @model_validator(mode="after")
    def _loader_fits(self) -> Recipe:
        task = getattr(self.dataset, "task", None)  # of OGB's own data only reading it will tell
        fits = getattr(self.train.loader, "tasks", (task,))
        if task is not None and task not in fits:
            raise ValueError(
                f"train.loader={self.train.loader.name} does not fit {self.dataset.name}, a {task} task; use "
                f"{' or '.join(loaders_of(task))}"
            )
        return self


def loaders_of(task: str) -> list[str]:
    """Return the names of the loaders that fit a task."""
    return [
        name for name in registry.LOADERS.names() if task in getattr(registry.LOADERS.config_class(name), "tasks", ())
    ]
