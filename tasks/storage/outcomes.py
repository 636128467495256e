"""Manifests of what is made of graphs: trained models, their vectors and layers, evaluations, publications."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from tasks.storage.manifests import Frozen, InnerPath, Manifest

VECTORS = "vectors"
"""Stage of `VectorsManifest`: no stage of a run, but its artifacts are made, found and cleaned as those are."""


class VectorTable(Frozen):
    """The vectors of one node type: a Parquet file as `graphmill export embeddings` writes it."""

    kind: str
    """The node type."""
    file: InnerPath
    num_rows: int
    own_ids: bool
    """Whether its ids are the users' own; else they are numbers, which mean nothing in another graph."""


class VectorsManifest(Manifest):
    """Vectors of a registered model's nodes, as features of other recipes, and what its training saw."""

    recipe: str
    """Name of the recipe that the model was trained by."""
    structure: str
    """What names the numbering of its nodes (`tasks.storage.ids.structure_digest`)."""
    node_tables: tuple[VectorTable, ...]
    """All tables' rows end to end are the rows that the arrays below name."""
    dim: int
    mean_square: float
    """Mean of the squares of all numbers."""
    as_of: str | None
    """Moment of the data; None: of all times."""
    directed: bool
    """Whether an edge and its reverse are two."""
    edges: InnerPath
    """`.npy`, id (E, 2): the edges that carried messages or trained, by their ends' rows."""
    trained: InnerPath
    """`.npy`, id (n,): rows of nodes whose labels the vectors learnt from; none where no label was read."""
    chosen: InnerPath
    """`.npy`, id (n,): rows of nodes whose labels chose the checkpoint."""
    sources: dict[str, str] = Field(default_factory=dict)
    """Models whose vectors were its own features: `NAME@VERSION` to key."""


LAYERS = "layers"
"""Stage of `LayersManifest`: no stage of a run either."""


class LayersManifest(Manifest):
    """All layers' outputs of one graph by one registered model; predictions for a newer graph take what is the same."""

    model_name: str
    """`NAME@VERSION` that computed them."""
    ingest: str
    """Key of the data's artifact."""
    partition: str
    """Key of the graph's artifact."""
    as_of: str | None
    num_nodes: int
    computed: tuple[int, ...]
    """Rows of each layer that were computed; the others were taken from the graph before."""
    full_seconds: float
    """What the newest pass took in which all rows were computed."""
    full_nodes: int
    """Nodes that it went through."""


class MachineUse(Frozen):
    """What a machine of a cluster did in a training, in its last attempt."""

    machine: str
    ranks: str
    """Which they were, in words."""
    cpu_percent: float
    """100: one core all the time."""
    peak_bytes: int
    """Of all its ranks together."""
    sent_bytes: int
    """By the whole machine, meanwhile."""
    fetched_bytes: int
    """Read of the machine with the home."""


class RunResult(Manifest):
    """A trained model."""

    model: dict[str, Any]
    seed: int
    world_size: int
    threads: int = 0
    """CPU threads of each rank; 0: made before that was noted."""
    strategy: str
    best_epoch: int
    best_metric: float
    """Validation metric at the best epoch (higher is better: errors are negated)."""
    epochs_run: int
    num_parameters: int
    seeds_per_second: float
    edges_per_second: float
    best_checkpoint: InnerPath
    last_checkpoint: InnerPath
    metrics_file: InnerPath
    """JSON lines, one a step or epoch: {"step", "epoch", "seconds", metric: value, ...}."""
    resumed_from_epoch: int = 0
    restarts: int = 0
    machines: tuple[MachineUse, ...] = ()
    """Of a cluster; none where all ranks ran on one machine without it."""
    warm_start: dict[str, Any] | None = None
    """Earlier snapshot whose weights it began with: `as_of`, `key` of that training, `used`, else `why_not`."""

    incidental: ClassVar[frozenset[str]] = Manifest.incidental | {
        "warm_start",
        "seeds_per_second",
        "edges_per_second",
        "resumed_from_epoch",
        "restarts",
        "machines",
    }


_ROW_UNITS = {"components": "directed edges", "partition": "directed edges", "train": "samples", "evaluate": "scored"}


def is_at_once(manifest: Manifest) -> bool:
    """Whether it is of a training that computes its vectors at once: without epochs, strategy or samples."""
    return isinstance(manifest, RunResult) and not manifest.strategy


def rows_text(stage: str, rows: int, *, at_once: bool) -> str:
    """Return how many rows a stage went through, and what they are, empty for none; `at_once`: see `is_at_once`."""
    unit = "nodes" if stage == "train" and at_once else _ROW_UNITS.get(stage, "rows")
    return f"{rows:,} {unit}" if rows else ""


class EvalReport(Manifest):
    """Metrics of the best checkpoint."""

    evaluator: str
    metric: str
    metrics: dict[str, dict[str, float]]
    """Split to metric to value, as the field prints it (RMSE positive, accuracy in 0..1)."""
    controls: dict[str, dict[str, dict[str, float]]] = Field(default_factory=dict)
    """Control to split to metric to value, on the same rows: what the model has to beat. `tasks/controls`
    says which there are."""
    predictions: InnerPath | None = None
    """Parquet under the users' own ids."""
    layout: InnerPath | None = None
    """Points of a layout, as Parquet under the users' own ids; `tasks/kinds/points.py`."""
    report: dict[str, Any] = Field(default_factory=dict)
    """Confusion matrix, ranking histogram: what the report draws."""


class GateRecord(BaseModel):
    """What the gate decided on a model version, and by what: for the report, MLflow, and whoever is told."""

    model_config = ConfigDict(frozen=True)

    promoted: bool = False
    reason: str = ""
    short: str = ""
    """The same in a few words."""
    loud: bool = False
    """Whether somebody should look at it."""
    left_alone: bool = False
    """Whether the run was not asked to choose a champion."""
    metric: str = ""
    """`split/metric`."""
    higher_is_better: bool = True
    value: float | None = None
    """The version's own, as evaluated; None: not a number."""
    controls: dict[str, float] = {}
    """Control to its value of the same metric."""
    control: str = ""
    """The control that was published in place of the model."""
    data: str = ""
    """Which data, for people."""
    against: str | None = None
    """Version of the champion that there was; None: there was no other."""
    drift: dict[str, Any] | None = None
    """How this data differs from the champion's (`publish.profile.compare`); None where nobody knows."""
    challenger: float | None = None
    champion: float | None = None
    """What both have on the same `rows`; None: they were not compared."""
    rows: int | None = None
    recorded: bool = False
    """Whether both values are those of the evaluations."""
    trained_on: int | None = None
    """Validation rows that the champion was trained on; None: not known."""
    why_not: str = ""
    """Why the champion could not score the data."""


class PublishManifest(Manifest):
    """Where the outcome can be looked at."""

    mlflow_run_id: str
    mlflow_run_url: str
    model_name: str
    model_version: str
    champion: bool
    """Whether this version became (or stayed) the champion."""
    gate: GateRecord
    report_file: InnerPath
    maps: tuple[InnerPath, ...] = ()
    """Where there is a layout: `map.html`, the page, and the same as pictures."""
