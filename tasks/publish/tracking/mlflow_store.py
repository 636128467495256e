"""MLflow: the run of a training, its metrics and its model; what is stored already is not stored twice.

An MLflow run belongs to one flow run and ends with it. A retry of the flow run resumes it; so does the flow run that
resumes an interrupted training. One that finds its training done has a run of its own, with a link to the run of the
training, and changes no other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from tasks.arrays import blocks
from tasks.processes.run_context import RunContext
from tasks.publish.tracking.mlflow_registry import MlflowRegistry
from tasks.publish.tracking.records import Record, metric_key, step_of, unique_by_step, values_of
from tasks.publish.tracking.store_uris import public_uri, run_url, sqlite_file, tracking_uri
from tasks.storage.artifacts import file_lock
from tasks.storage.home import Home

RunStatus = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]

TRAIN_KEY = "graphmill.train_key"
RECIPE = "graphmill.recipe"
FLOW_RUN = "prefect.flow_run_id"
TRAINED_IN = "graphmill.training_run"
"""MLflow run of the training, in a run that found it done."""
_NOTE = "mlflow.note.content"
_INTERRUPTED = ("FAILED", "KILLED")
METRICS_A_CALL = 1000  # MLflow's limit; 0.7 s on SQLite (2 cores, 2026)
_PARAMS_A_CALL = 100  # MLflow's limit for parameters and tags


class Tracker(MlflowRegistry):
    """One MLflow run, opened or resumed."""

    def __init__(
        self,
        home: Home,
        experiment: str,
        uri: str | None = None,
        pauses: Sequence[float] | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        """Connect to the store, and find or make the experiment. Raises StageError if it cannot be reached."""
        super().__init__(home, uri, pauses, on_wait)
        with file_lock(self.lock):
            self.experiment_id: str = self.call(self._experiment, experiment)
        self.run_id = ""
        self.trained_in = ""
        """MLflow run of the training, where that is another one."""
        self._origin = ""
        """Which flow run this run is of, in words."""
        self._buffer: list[Record] = []

    # ---- the run

    def open_run(
        self, train_key: str, recipe_name: str, context: RunContext | None = None, *, trains: bool = True
    ) -> bool:
        """Resume the flow run's own run, or start one. Returns whether it was there already.

        Without a flow run, `context`, the newest run of the training is resumed; a flow run that trains resumes the run
        of a training that was interrupted, too.
        """
        tags = {TRAIN_KEY: train_key, RECIPE: recipe_name}
        where = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
        flow_run = context.flow_run_id if context is not None else ""
        with file_lock(self.lock):  # else two processes both find none and start two
            runs = list(self.call(self.client.search_runs, [self.experiment_id], where))
            able = runs
            if flow_run:
                of_flow_run = [run for run in runs if run.data.tags.get(FLOW_RUN) == flow_run]
                ended = [run for run in runs if run.info.status in _INTERRUPTED and TRAINED_IN not in run.data.tags]
                able = [*of_flow_run, *(ended if trains else [])]
            resumed = able[0] if able else None
            if resumed is not None:
                self.run_id, self.trained_in = resumed.info.run_id, resumed.data.tags.get(TRAINED_IN, "")
                self.call(self.client.update_run, self.run_id, status="RUNNING")
            else:
                if not trains:
                    self.trained_in = next((run.info.run_id for run in runs if TRAINED_IN not in run.data.tags), "")
                    tags |= {TRAINED_IN: self.trained_in} if self.trained_in else {}
                name = (context.name if context is not None else "") or recipe_name
                run = self.call(self.client.create_run, self.experiment_id, tags=tags, run_name=name)
                self.run_id = run.info.run_id
        if context is not None and context.flow_run_id:
            place = f"[{context.flow_run_id}]({context.flow_run_url})" if context.flow_run_url else context.flow_run_id
            self._origin = f"Prefect run {place}"
            if self.trained_in:
                page = run_url("", self.experiment_id, self.trained_in)
                self._origin += f"; its training was done, and was logged in [this run]({page})"
            self.set_tags(
                {
                    FLOW_RUN: context.flow_run_id,
                    _NOTE: self._origin,
                    "prefect.flow_run_url": context.flow_run_url,
                    **({"mlflow.parentRunId": context.parent_run} if context.parent_run else {}),
                }
            )
        return resumed is not None

    def describe(self, text: str) -> None:
        """Set the description (Markdown) that MLflow shows on the run's page; where the run comes from stands below."""
        self.set_tags({_NOTE: f"{text}\n\n{self._origin}".strip()})

    @property
    def run_url(self) -> str:
        """The run's page on a server; with SQLite the file and the page's place (see `how_to_open`)."""
        pages = os.environ.get("GRAPHMILL_MLFLOW_PAGES") or public_uri(self.uri)  # what browsers know the server by
        return run_url(pages, self.experiment_id, self.run_id)

    def record(self, record: Record) -> None:
        """Log a training's record of metrics (`step`, `epoch`, numbers) soon: see `flush`."""
        self._buffer.append(record)
        if sum(len(values_of(r)) for r in self._buffer) >= METRICS_A_CALL:
            self.flush()

    def flush(self) -> None:
        """Log what `record` has gathered. On failure it is kept for the next attempt."""
        now = int(time.time() * 1000)
        points = [(key, v, now, step_of(r)) for r in self._buffer for key, v in values_of(r).items()]
        self._log_points(points)
        self._buffer.clear()

    def close(self, status: RunStatus | None) -> None:
        """Flush and end the run; None leaves it running, for the publication to end it."""
        self.flush()
        if status is not None:
            self.call(self.client.set_terminated, self.run_id, status)

    # ---- what a run holds

    def log_curves(self, records: Sequence[Record], started_at_seconds: float) -> int:
        """Log the records of a whole training, those steps that the run lacks. Returns how many values were new.

        `started_at_seconds` is the time (since 1970) that the records' `seconds` count from.
        """
        points = []
        for key, by_step in unique_by_step(records).items():
            history = self.call(self.client.get_metric_history, self.run_id, metric_key(key))
            logged = {point.step for point in history}
            for step, (value, seconds) in by_step.items():
                if step not in logged:
                    points.append((key, value, int((started_at_seconds + seconds) * 1000), step))
        self._log_points(points)
        return len(points)

    def log_metrics(self, values: dict[str, float], step: int, model_id: str | None = None) -> None:
        """Log final values, also as the model's own where `model_id` is given; those stored already stay."""
        from mlflow.entities import Metric

        now, logged = int(time.time() * 1000), self.call(self.client.get_run, self.run_id).data.metrics
        named = {metric_key(key): value for key, value in values.items()}
        new = {key: value for key, value in named.items() if logged.get(key) != value}
        fresh = [Metric(key, value, now, step, model_id=model_id) for key, value in new.items()]
        if fresh:
            self.call(self.client.log_batch, self.run_id, metrics=fresh)

    def log_params(self, params: dict[str, str]) -> None:
        """Log parameters. MLflow's parameters never change: one that is there keeps its first value."""
        from mlflow.entities import Param

        logged = self.call(self.client.get_run, self.run_id).data.params
        fresh = [Param(key, value) for key, value in params.items() if key not in logged]
        for part in blocks(len(fresh), _PARAMS_A_CALL):
            self.call(self.client.log_batch, self.run_id, params=fresh[part])

    def set_tags(self, tags: dict[str, str]) -> None:
        """Set tags; a value is replaced."""
        from mlflow.entities import RunTag

        batch = [RunTag(key, value[:8000]) for key, value in tags.items()]
        self.call(self.client.log_batch, self.run_id, tags=batch)

    def log_dataset(self, name: str, digest: str, source: str, profile: str, schema: str) -> None:
        """Log the data set as the run's input (`schema` and `profile` are JSON texts)."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        data = Dataset(name[:500], digest[:36], "graphmill", source[:65000], schema[:1_000_000], profile[:1_000_000])
        given = [DatasetInput(data, [InputTag("mlflow.data.context", "training")])]
        self.call(self.client.log_inputs, self.run_id, given)

    def log_artifact(self, path: Path) -> None:
        """Copy a file into the run's artifacts; one of that name is replaced."""
        self.call(self.client.log_artifact, self.run_id, str(path))

    # ---- the model

    def log_model(self, folder: Path, name: str, digest: str, params: dict[str, str]) -> str:
        """Log a folder of plain files as a model (no pickled code) and return its id; done once a digest."""
        where = f"tags.`graphmill.digest` = '{digest}'"
        runs = (self.run_id, self.trained_in)  # the training's own has the model already
        for model in self.call(self.client.search_logged_models, [self.experiment_id], where):
            if str(model.status).endswith("READY") and model.source_run_id in runs:
                return str(model.model_id)
        model = self.call(
            self.client.create_logged_model,
            self.experiment_id,
            name,
            self.run_id,
            tags={"graphmill.digest": digest},
            params={key: value[:500] for key, value in params.items()},
            model_type="graphmill",
        )
        self.call(self.client.log_model_artifacts, model.model_id, str(folder))
        self.call(self.client.finalize_logged_model, model.model_id, "READY")
        return str(model.model_id)

    def published_digest(self, model_id: str) -> str:
        """Return the digest that a model was logged with; empty where none was."""
        tags = self.call(self.client.get_logged_model, model_id).tags if model_id else {}
        return str(tags.get("graphmill.digest", ""))

    # ---- how

    def _experiment(self, name: str) -> str:
        experiment = self.client.get_experiment_by_name(name)
        if experiment is not None:
            if experiment.lifecycle_stage != "active":
                self.client.restore_experiment(experiment.experiment_id)
            return str(experiment.experiment_id)
        location = None
        if (file := sqlite_file(self.uri)) is not None:  # MLflow's default would be ./mlruns of wherever we run
            location = (file.resolve().parent / "artifacts").as_uri()
        # Else MLflow's pages open in their view of language models.
        kind = {"mlflow.experimentKind": "custom_model_development"}
        return str(self.client.create_experiment(name, artifact_location=location, tags=kind))

    def _log_points(self, points: Sequence[tuple[str, float, int, int]]) -> None:
        from mlflow.entities import Metric

        metrics = [Metric(metric_key(key), value, at, step) for key, value, at, step in points]
        for part in blocks(len(metrics), METRICS_A_CALL):
            self.call(self.client.log_batch, self.run_id, metrics=metrics[part])


BACKFILL = "graphmill.backfill"


def open_parent(home: Home, experiment: str, name: str, tags: dict[str, str]) -> str:
    """Return the id of the run that a backfill's runs stand under, made if there is none. Raises StageError."""
    tracker = Tracker(home, experiment, pauses=(1.0,))
    where = f"tags.`{BACKFILL}` = '{name}'"
    with file_lock(home.locks / "mlflow.lock"):
        runs = tracker.call(tracker.client.search_runs, [tracker.experiment_id], where, max_results=1)
        if runs:
            return str(runs[0].info.run_id)
        tags = {**tags, BACKFILL: name}
        run = tracker.call(tracker.client.create_run, tracker.experiment_id, tags=tags, run_name=f"backfill {name}")
        return str(run.info.run_id)


def set_state(home: Home, run_id: str, status: RunStatus) -> None:
    """Say how a run stands or ended. Raises StageError where MLflow cannot be reached."""
    tracker = MlflowRegistry(home, pauses=(1.0,))
    if status == "RUNNING":
        tracker.call(tracker.client.update_run, run_id, status=status)
    else:
        tracker.call(tracker.client.set_terminated, run_id, status)


def bury(home: Home, experiment: str, flow_run_id: str) -> None:
    """Mark the MLflow run of a flow run that was killed as failed, if it still says that it runs. Raises StageError."""
    database = sqlite_file(tracking_uri(home))
    if database is not None and not database.exists():
        return
    tracker = Tracker(home, experiment, pauses=())
    where = f"tags.`{FLOW_RUN}` = '{flow_run_id}' and attributes.status = 'RUNNING'"
    for run in tracker.call(tracker.client.search_runs, [tracker.experiment_id], where):
        tracker.call(tracker.client.set_terminated, run.info.run_id, "FAILED")
