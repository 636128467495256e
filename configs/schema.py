"""The recipe: everything that one job is, in one frozen object."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SerializeAsAny,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from configs import registry
from configs.base import ConfigModel, FloatTuple, StrTuple
from configs.families.row_training import train_section
from configs.layout_options import LAYOUT, LayoutOptions, NeighborsConfig
from configs.metric_names import check_measured
from configs.moments import normalise_as_of
from configs.registry import (
    DatasetSection,
    EvaluatorSection,
    ExplainerSection,
    ModelSection,
    PartitionerSection,
    TextsSection,
    TransformSection,
)
from configs.training import TrainBase, TrainConfig
from configs.values.cluster import ClusterConfig
from configs.values.deciding import CostsConfig, ThresholdRule
from configs.values.expectations import ExpectConfig
from configs.values.sizes import number_of_bytes

STAGES = ("ingest", "preprocess", "components", "partition", "train", "evaluate", "publish")

# YAML makes whole numbers and dates of some moments.
AsOf = Annotated[str, BeforeValidator(normalise_as_of), WithJsonSchema({"type": ["string", "integer"]})]


class SnapshotConfig(ConfigModel):
    """The data as of a moment: only what existed then."""

    as_of: AsOf | None = None
    """Moment: `2023`, `2023-06`, `2023-06-30` (each means its end), a time stamp (UTC unless it says otherwise), or a
    whole number in the unit of the data's times. Nodes and edges that are newer do not exist. null: everything."""
    by: Literal["auto", "times", "versions"] = "auto"
    """times: nodes and edges that are newer do not exist; versions: tables of Delta Lake and Iceberg are read as they
    were, and nothing is left out by its time. auto: versions in the data set `database`, and of `tables` where no table
    names a time and one keeps versions."""
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
    """Merge parallel edges of a relation: features and times of the first stay, and a line says how many went."""
    merge_weights: Literal["sum", "max", "first"] = "sum"
    """How the weights of merged parallel edges combine."""
    self_loops: Literal["remove", "keep", "add"] = "remove"
    """Drop self-loops, leave them as they are, or give every node exactly one."""
    transforms: tuple[TransformSection, ...] = ()
    """Feature transforms in order, each fitted on the training split only (`graphmill transforms`)."""
    texts: TextsSection = Field(default="tfidf", validate_default=True)
    """What makes numbers of columns of texts (`graphmill texts`)."""
    feature_dtype: Literal["float32", "float16"] = "float32"
    """How features are stored; float16 halves disk and memory, models compute in float32."""
    workers: int = Field(default=0, ge=0, le=4096)
    """Processes over shards; 0: one a core."""
    neighbors: NeighborsConfig | None = None
    """Edges between nearest neighbours, by nodes' features as the transforms leave them; for data without edges. null:
    none; the data set `vectors` has them."""

    runtime_fields: ClassVar[frozenset[str]] = frozenset({"workers"})

    gone: ClassVar[dict[str, str]] = {
        "runner": "shards go to processes of this machine, or of a Ray cluster's machines where the run is told "
        "--cluster auto or cluster.address=HOST:6379"
    }

    @model_validator(mode="after")
    def _neighbors_go_both_ways(self) -> PreprocessConfig:
        if self.neighbors is not None and (not self.symmetrize or self.self_loops == "add"):
            option = "self_loops=add" if self.symmetrize else "symmetrize=false"
            raise ValueError(f"{option}: neighbors join two rows in both directions; leave it out")
        return self


class ComponentsConfig(ConfigModel):
    """Which weakly connected components stay."""

    keep: str = Field(default="all", pattern=r"^(all|largest|min_size=[1-9][0-9]*|top_k=[1-9][0-9]*)$")
    """`all`, `largest`, `min_size=K` (components of at least K nodes) or `top_k=K` (the K largest)."""


class EvaluateConfig(ConfigModel):
    """What is measured, and on what."""

    runtime_fields: ClassVar[frozenset[str]] = frozenset({"memory"})

    evaluator: EvaluatorSection = Field(default="auto", validate_default=True)
    """Metric; auto: the data set's own, OGB's evaluator for OGB data (`graphmill evaluators`)."""
    splits: StrTuple = ("valid", "test")
    """Splits to report."""
    costs: CostsConfig | None = None
    """Of one label of yes or no, or two classes: what mistakes cost; the report then has the threshold by which they
    cost least. null: that is not asked."""
    threshold: ThresholdRule | None = None
    """How the probability is chosen, on the validation split, from which a row is called positive (of two classes the
    rarer one): f1, cost, precision=0.9, recall=0.8, or share=0.01, the highest 1 % of rows. Predictions and `graphmill
    predict` go by it. null: the likelier class is predicted."""
    batch_size: int = Field(default=16384, ge=1)
    """Nodes, edges or graphs at a time; changes memory and time, and the last bits of scores."""
    memory: Annotated[float, BeforeValidator(number_of_bytes)] = Field(default=1e9, ge=1e6, le=1e15)
    """Memory of ranking triples among all entities, in validation and evaluation: 500MB, 2GB, or bytes. Rows of
    entities, and 16 bytes for each known triple, are beside it. Less takes longer; ranks are the same."""
    predictions: bool = True
    """Write predictions as Parquet under the users' own ids."""
    label_shares: FloatTuple | None = None
    """Vectors of nodes alone (skipgram, prone, ...): F1 where such shares of the labelled nodes are known, each between
    0 and 1; null: 0.1, 0.2, ... 0.9."""

    groups: StrTuple = ("degree",)
    """Columns of the rows' own table, or `degree`, by which the report tells the metric for groups of rows: fifths of
    numbers and times (`time`), the most frequent categories."""

    layout: LayoutOptions | None = None
    """A map of the model's vectors, as a page and as pictures; null: none, except of a model that is a layout."""
    explain: ExplainerSection | None = None
    """An explainer (`graphmill explainers`): the report then says why the model errs where it errs most, and which
    columns matter over all rows. null: it does not, and `graphmill explain` goes by removal."""

    @field_validator("splits")
    @classmethod
    def _known_splits(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = set(value) - {"train", "valid", "test"}
        if unknown or not value:
            raise ValueError(f"splits are train, valid and test, not {', '.join(sorted(unknown)) or 'none'}")
        if len(set(value)) < len(value):
            raise ValueError(f"splits are named once each, not {', '.join(value)}")
        return value

    @model_validator(mode="after")
    def _threshold_can_be_chosen(self) -> EvaluateConfig:
        if self.threshold == "cost" and self.costs is None:
            raise ValueError("threshold=cost: say what mistakes cost: costs={false_positive: 1, false_negative: 40}")
        if self.threshold is not None and "valid" not in self.splits:
            raise ValueError("threshold is chosen on the validation split, which splits leaves out; add valid")
        return self

    @field_validator("label_shares")
    @classmethod
    def _between_0_and_1(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if value is not None and not value:
            raise ValueError("no share is named; leave label_shares out, or name some, such as 0.01,0.05,0.1")
        for share in value or ():
            if not 0 < share < 1:
                raise ValueError(f"{share:g} is not a share between 0 and 1")
        if value is not None and len(set(value)) != len(value):
            raise ValueError("a share stands twice")
        return value


class TrackingConfig(ConfigModel):
    """MLflow and the model registry."""

    experiment: str = Field(default="graphmill", pattern=r"^[^\x00-\x1f]+$", max_length=250)
    """MLflow experiment."""
    model_name: str | None = Field(default=None, pattern=r"^[^/:@'\"\x00-\x1f]+$", max_length=250)
    """Name in the model registry; null: the recipe's name."""
    gate_metric: str | None = None
    """Metric that decides who is champion, as `valid/metric`; null: the evaluator's."""
    gate_controls: Literal["all", "simple", "none"] = "all"
    """Which controls keep a model that is below them from becoming champion: all that the report shows, the simple ones
    (the majority, a linear model on the rows' own features, popularity), or none."""
    publish: Literal["model", "best"] = "model"
    """What becomes a version of the registered model: the model; or the best of the model and those controls that can
    score new rows (boosting, popularity, the past), which then serves in its place."""
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
        if value is not None:
            check_measured(name, registry.EVALUATORS.names())
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
    expect: ExpectConfig = ExpectConfig()
    """What the data has to be for a run or a prediction to go on."""
    preprocess: PreprocessConfig = Field(default=PreprocessConfig(), validate_default=True)
    """Edges and features."""
    components: ComponentsConfig = ComponentsConfig()
    """Filter by connected component."""
    partition: PartitionerSection = Field(default="auto", validate_default=True)
    """How the graph is split (`graphmill partitioners`)."""
    model: ModelSection
    """The model (`graphmill models`)."""
    train: SerializeAsAny[TrainBase] = TrainConfig.model_construct()
    """The training; its options depend on the model's family."""
    evaluate: EvaluateConfig = EvaluateConfig.model_construct()
    """Metrics and predictions."""
    tracking: TrackingConfig = TrackingConfig()
    """MLflow."""
    cluster: ClusterConfig = ClusterConfig()
    """Machines beside this one (`graphmill cluster`)."""

    @field_validator("preprocess", mode="before")
    @classmethod
    def _as_the_dataset_has_it(cls, value: Any, info: ValidationInfo) -> Any:
        dataset = info.data.get("dataset")  # None: it is a mistake, and that is said
        given = value.model_dump(exclude_unset=True) if isinstance(value, ConfigModel) else value
        defaults = {} if dataset is None else dataset.preprocess_defaults
        return {**defaults, **given} if defaults and isinstance(given, dict) else value

    @field_validator("train", mode="before")
    @classmethod
    def _train_as_the_model_does(cls, value: Any, info: ValidationInfo) -> Any:
        model = info.data.get("model")  # None: it is a mistake, and that is said
        return TrainConfig.model_construct() if model is None else train_section(type(model)).model_validate(value)

    @field_validator("train", "evaluate", mode="before")
    @classmethod
    def _fill_defaults(cls, value: Any) -> Any:
        # Comes before the one above. Sections that hold components are filled when a recipe is read: filling them at
        # import would import torch.
        return value.model_dump(exclude_unset=True) if isinstance(value, ConfigModel) else value

    @property
    def is_layout(self) -> bool:
        """Whether the model is a layout: it is looked at, and predicts nothing."""
        return self.train.family == LAYOUT

    @property
    def neighbors(self) -> NeighborsConfig | None:
        """What joins nearest neighbours, with the weights that the model's authors take where the recipe says none."""
        section = self.preprocess.neighbors
        return None if section is None else section.settled(getattr(self.model, "usual_weights", "perplexity"))

    @property
    def version_moment(self) -> str | None:
        """Moment as of which tables are read that keep their versions; None: no such moment."""
        by_versions = self.snapshot.as_of is not None and self.dataset.reads_versions(self.snapshot.by)
        return self.snapshot.as_of if by_versions else None

    @property
    def time_moment(self) -> str | None:
        """Moment after which nodes and edges do not exist, by their times; None: all exist."""
        return None if self.version_moment is not None else self.snapshot.as_of

    @model_validator(mode="after")
    def _sections_fit(self) -> Recipe:
        self.dataset.check_recipe(self)
        if self.dataset.reads_versions(self.snapshot.by) and self.snapshot.as_of is not None:
            self.dataset.with_versions(self.snapshot.as_of)  # may refuse
        self.model.check_recipe(self)
        task = getattr(self.dataset, "task", None)  # of OGB's own data only reading it will tell
        if self.evaluate.label_shares is not None:
            kind = getattr(self.dataset, "task_type", None)
            if self.train.family not in ("table", "factors"):
                raise ValueError(
                    f"evaluate.label_shares is for models that are vectors of nodes (skipgram, prone, ...), and "
                    f"{self.model.name} is none; leave it out"
                )
            if task not in (None, "node") or kind == "regression":
                what = "regression" if kind == "regression" else f"a {task} task"
                raise ValueError(f"evaluate.label_shares is for classes of nodes, and this is {what}; leave it out")
        if self.snapshot.warm_start and self.train.family in ("table", "factors", "multiplex"):
            raise ValueError(
                f"snapshot.warm_start: vectors of {self.model.name} are learnt afresh in every snapshot; leave it out"
            )
        if getattr(self.dataset, "task", None) == LAYOUT and not self.is_layout:
            raise ValueError(
                f"dataset.task=layout: nothing is predicted, and model.name={self.model.name} predicts; take largevis, "
                "umap or tsne, or set dataset.task"
            )
        if self.is_layout and self.evaluate.layout is not None:
            given = self.evaluate.layout.not_usual()
            if given:
                raise ValueError(
                    f"evaluate.layout.{given[0]}: model.name={self.model.name} is the layout itself; give options of "
                    "the model (model.name, model.dim) and of preprocess.neighbors, and of evaluate.layout color alone"
                )
        loader = getattr(self.train, "loader", None)
        if loader is not None and task is not None and task not in getattr(loader, "tasks", (task,)):
            raise ValueError(
                f"train.loader={loader.name} does not fit {self.dataset.name}, a {task} task; use "
                f"{' or '.join(loaders_of(task, self.train.family))}"
            )
        return self


def loaders_of(task: str, family: str = TrainConfig.family) -> list[str]:
    """Return the names of the loaders that fit a task, of those for a family of models."""
    return [
        name
        for name in registry.LOADERS.names()
        for config in [registry.LOADERS.config_class(name)]
        if task in getattr(config, "tasks", ()) and family in getattr(config, "families", (family,))
    ]
