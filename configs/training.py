"""The section `train`: what every training reads, and what those by gradients of batches do.

Options that a model's family does not read do not exist in its recipes (`families.row_training.SECTIONS`).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from configs import registry
from configs.base import ConfigModel
from configs.registry import EmbeddingsSection, LoaderSection, LossSection, ScheduleSection, StrategySection


class TrainBase(ConfigModel):
    """What every training reads. Sections of families put it behind their own options: `class X(TrainBase, Own)`."""

    family: ClassVar[str]
    auto_takes_gpu: ClassVar[bool] = True
    """Whether device=auto is a GPU where there is one."""
    ranks_share_files: ClassVar[bool] = False
    """Whether ranks read files that others write while they train."""
    num_ranks: int = Field(default=1, ge=1, le=4096)
    """Processes that train together, one device each: on this machine, or on those of a cluster (`cluster.address`)."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the model trains; auto takes a GPU where there is one, except for tables of rows: of nodes, of knowledge
    graphs."""
    threads: int = Field(default=0, ge=0, le=4096)
    """CPU threads a rank; 0: this machine's cores divided by num_ranks. Sums are rounded by how many threads take them,
    so another number trains anew."""
    checkpoint_minutes: float = Field(default=10.0, gt=0)
    """Checkpoint when the last one is so many minutes old; a killed run resumes from it."""
    max_restarts: int = Field(default=2, ge=0)
    """How often a job whose rank died is started again from its last checkpoint."""

    runtime_fields: ClassVar[frozenset[str]] = frozenset({"max_restarts", "checkpoint_minutes"})

    gone = dict.fromkeys(
        ("hosts", "ssh", "machine_rank", "num_machines", "rendezvous", "shared_home"),
        "machines are those of a Ray cluster (`graphmill cluster start`, `graphmill cluster join` on the others), and "
        "a run is told --cluster auto or cluster.address=HOST:6379; num_ranks counts the ranks of all of them together",
    )

    @model_validator(mode="after")
    def _components_fit(self) -> TrainBase:
        for key, components in (("loader", registry.LOADERS), ("strategy", registry.STRATEGIES)):
            value = getattr(self, key, None)
            if value is not None and self.family not in getattr(value, "families", (self.family,)):
                fit = [
                    name
                    for name in components.names()
                    if self.family in getattr(components.config_class(name), "families", (self.family,))
                ]
                raise ValueError(f"{key}={value.name} is not for such models; use {' or '.join(fit)}")
        return self


class SelfTrainingConfig(ConfigModel):
    """Several trainings in a row: each learns as well from what the one before it is sure of."""

    rounds: int = Field(default=1, ge=1)
    """Trainings after the first, each with as many epochs."""
    min_probability: float = Field(default=0.9, gt=0, lt=1)
    """Probability from which a prediction counts as a label."""


class _GradientOptions(ConfigModel):
    loader: LoaderSection = Field(default="auto", validate_default=True)
    """How batches are made (`graphmill loaders`)."""
    epochs: int = Field(default=20, ge=1, le=10_000_000)
    """Passes over the training split."""
    accumulate_steps: int = Field(default=1, ge=1)
    """Batches whose gradients are averaged before the optimizer steps."""
    loss: LossSection = Field(default="auto", validate_default=True)
    """What scores are to be like (`graphmill losses`)."""
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
    strategy: StrategySection = Field(default="data_parallel", validate_default=True)
    """How ranks share the work (`graphmill strategies`)."""
    self_training: SelfTrainingConfig | None = None
    """Train again on confident predictions for unlabelled nodes; null: once."""
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    """What layers compute and store in; weights stay float32. tf32 stores float32, and products take factors of 10
    bits; it needs a GPU."""
    deterministic: bool = True
    """Have torch take algorithms that give the same bits each time, also after an interruption; false: the fastest, on
    GPUs with sums in any order. There cuSPARSE, which `kernels=auto` takes, may still round otherwise each time."""
    sampling: Literal["cpu", "device"] = "cpu"
    """Where neighbours are sampled and their features gathered: by the CPU's threads, or on the GPU, with graph
    and features in its memory (the same batches; not yet run on a GPU)."""
    kernels: Literal["auto", "torch", "triton"] = "auto"
    """What passes messages on a GPU: torch's functions, or fused kernels in Triton; auto: torch's, as long as the
    others have not run on a GPU. CPUs have kernels of their own."""
    share_gpu: bool = False
    """Let several ranks of a machine compute on one GPU, and exchange gradients through CPU memory (gloo): to try
    several ranks where there is one GPU. It is slower than one rank."""
    embeddings: EmbeddingsSection = Field(default="dense", validate_default=True)
    """Where learnable node embeddings of graphs without features live (`graphmill embeddings`)."""
    prefetch: int | None = Field(default=None, ge=0, le=4096)
    """Batches prepared ahead by background threads, in memory; 0: by the training itself, when it needs them; null: 2,
    or where a GPU trains twice as many as threads prepare them."""
    sampling_threads: int | None = Field(default=None, ge=1, le=4096)
    """Background threads that prepare batches, no more than `prefetch`; null: 1, or where a GPU trains and the CPU
    samples, two fewer than a rank has cores, up to 16."""


class TrainConfig(TrainBase, _GradientOptions):
    """Training by gradients of batches."""

    family: ClassVar[str] = "gnn"
    runtime_fields: ClassVar[frozenset[str]] = TrainBase.runtime_fields | {
        "prefetch",
        "sampling_threads",
        "checkpoint_every",
        "share_gpu",
        "sampling",
    }

    gone = TrainBase.gone | {"class_weight": "it is one of the loss: train.loss.class_weight"}

    @model_validator(mode="after")
    def _rare_classes_count_more_once(self) -> TrainConfig:
        weighs = getattr(self.loss, "class_weight", "none") != "none"
        if weighs and getattr(self.loader, "balance", "none") != "none":
            raise ValueError("loader.balance and loss.class_weight both have rare classes count more; take one of them")
        return self

    @model_validator(mode="after")
    def _threads_have_work(self) -> TrainConfig:
        prefetch = 2 if self.prefetch is None else self.prefetch
        if self.sampling_threads is not None and self.sampling_threads > max(1, prefetch):
            raise ValueError(
                f"sampling_threads={self.sampling_threads} cannot all work with prefetch={prefetch}, for each "
                f"prepares one batch at a time; set prefetch to {self.sampling_threads} or more"
            )
        return self


# MAP@10 of recommendations (600 generated products, 8 epochs) at 0.01, 0.03 and 0.1: 0.157, 0.165, 0.178. A row is met
# in few steps, and has to move far in each (November 2026).
_ROWS: dict[str, Any] = {"name": "sparse", "optimizer": "sparse_adam", "learning_rate": 0.1}
"""Where learnt vectors of single rows live where nobody says otherwise."""


class RelationalTrainConfig(TrainConfig):
    """Training of models of typed graphs, by gradients of batches."""

    family: ClassVar[str] = "relational"

    loader: LoaderSection = Field(default="relational", validate_default=True)
    """How batches are made: around each seed, by relation, of what was there before its moment."""
    embeddings: EmbeddingsSection = Field(default=_ROWS, validate_default=True)
    """Where the vectors live that are learnt of single rows (model.id_embedding): in CPU memory, a step touching those
    of its batch, or with `dense` as other weights do."""

    @model_validator(mode="before")
    @classmethod
    def _options_are_of_the_usual_loader(cls, data: Any) -> Any:
        """Take `loader: {fanout: 8}` for options of this family's loader."""
        if isinstance(data, dict) and isinstance(data.get("loader"), dict):
            data = {**data, "loader": {"name": "relational", **data["loader"]}}
        if isinstance(data, dict) and isinstance(data.get("embeddings"), dict) and "name" not in data["embeddings"]:
            data = {**data, "embeddings": {**_ROWS, **data["embeddings"]}}
        return data

    @model_validator(mode="after")
    def _only_what_samples_rows_by_their_moments(self) -> RelationalTrainConfig:
        others = {"self_training": None, "sampling": "cpu"}
        changed = [name for name, off in others.items() if getattr(self, name) != off]
        if changed:
            needed = others[changed[0]]
            raise ValueError(
                f"{changed[0]} is not for models of typed graphs, whose batches the CPU samples as of each row's "
                f"moment; set {changed[0]}={'null' if needed is None else str(needed).lower()}"
            )
        return self
