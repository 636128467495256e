"""The record of a run: one JSON file under `runs/`, for `plan`, `clean`, `inspect` and people."""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ValidationError

from configs.load import dump_recipe
from configs.schema import Recipe
from tasks.calls import StageRecord
from tasks.processes import ending
from tasks.storage.artifacts import disk_errors, file_lock, is_locked, try_lock, write_atomic
from tasks.storage.file_names import file_name
from tasks.storage.home import Home
from tasks.storage.home_files.trouble import as_trouble

Status = Literal["running", "completed", "failed", "cancelled"]
KILLED = "its process was killed"
RECIPE_TAG = "recipe:"
"""Runs of a deployment carry it, with the recipe's name."""
_LAST_WORDS_BYTES = 65_536
"""Kept free for a record that says that the disk is full."""


def _checked_moment(text: str) -> str:
    if datetime.datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("has no offset from UTC")
    return text


Moment = Annotated[str, AfterValidator(_checked_moment)]
"""A time as `now_text` gives it."""


class RunRecord(BaseModel):
    """What one `graphmill run` was asked, did and came to."""

    id: str
    """Id of the Prefect flow run; a retried run keeps its record."""
    in_prefect: bool = True
    """Whether Prefect's history has it; not one from the command line that found everything."""
    recipe: str
    """Name of the recipe."""
    source: str = ""
    """What the user named: a shipped recipe or a file."""
    overrides: list[str] = []
    tags: list[str] = []
    """Tags of the flow run: `--tag`, a backfill's, a deployment's."""
    config: dict[str, Any] = {}
    """The whole resolved recipe."""
    deployment: str = ""
    """Id of the deployment that the run is of; empty for one from the command line."""
    status: Status = "running"
    error: str = ""
    failed_before: str = ""
    """Error of an earlier start of this very run that failed or was killed."""
    started_at: Moment
    finished_at: Literal[""] | Moment = ""
    selected: list[str] = []
    stages: dict[str, StageRecord] = {}
    """In order."""
    metrics: dict[str, dict[str, float]] = {}
    controls: dict[str, dict[str, dict[str, float]]] = {}
    """What the metrics have to beat: control to split to metric to value."""
    reported: dict[str, float] = {}
    """Metrics of the test split that only the evaluation's report has: `f1_micro@0.5`, `mrr@seen`."""
    report: str = ""
    """Path of the report."""
    map: str = ""
    """Path of the page that shows the layout; empty: the run has none."""
    written: str = ""
    """What the use of a model has written: a path."""
    champion: str = ""
    """What its publication did about the champion, in words."""
    becoming: str = ""
    """`NAME@VERSION` that was about to become champion when the run was last heard of."""
    mlflow_run_id: str | None = None
    mlflow_run_url: str = ""
    process: int = 0
    host: str = ""

    @property
    def as_of(self) -> str | None:
        """Moment of the run's snapshot; None: it had none, or the record does not say."""
        section = self.config.get("snapshot")
        moment = section.get("as_of") if isinstance(section, dict) else None
        return moment if isinstance(moment, str) else None

    @property
    def _transforms(self) -> list[dict[str, Any]]:
        section = self.config.get("preprocess")
        transforms = section.get("transforms") if isinstance(section, dict) else None
        return [one for one in transforms if isinstance(one, dict)] if isinstance(transforms, list) else []

    @property
    def vectors(self) -> list[str]:
        """Keys of the registered models' vectors that its features come from."""
        return [one["vectors"] for one in self._transforms if isinstance(one.get("vectors"), str)]

    @property
    def models(self) -> list[str]:
        """Registered models (`NAME@VERSION`) that its features come from."""
        return [one["model"] for one in self._transforms if isinstance(one.get("model"), str)]

    @property
    def cached(self) -> bool:
        """Whether it ended well and found all that it was asked for, without making anything."""
        return self.status == "completed" and {stage.status for stage in self.stages.values()} == {"cached"}

    @property
    def started(self) -> datetime.datetime:
        """When it began."""
        return datetime.datetime.fromisoformat(self.started_at)

    def has_run(self, name: str) -> bool:
        """Whether this run made a stage's artifact itself."""
        return name in self.stages and self.stages[name].status == "ran"

    def parent_keys(self, parents: tuple[str, ...]) -> dict[str, str]:
        """Return the keys of these stages' artifacts."""
        return {name: self.stages[name].key for name in parents}

    def write(self, home: Home) -> None:
        """Write the record, whole or not at all."""
        write_atomic(record_path(home, self.id), self.model_dump_json(indent=1).encode())


def new_record(
    recipe: Recipe, source: str, overrides: list[str], tags: Iterable[str], selected: Iterable[str]
) -> RunRecord:
    """Return the record of a run from the command line that begins now, and that Prefect does not hear of."""
    return RunRecord(
        id=str(uuid.uuid4()),
        in_prefect=False,
        recipe=recipe.name,
        source=source,
        overrides=overrides,
        tags=sorted(tags),
        config=dump_recipe(recipe),
        started_at=now_text(),
        selected=list(selected),
    )


def begun_record(run_id: str, parameters: dict[str, Any], tags: Iterable[str], deployment: object) -> RunRecord:
    """Return the record of a flow run of which only Prefect's part is known: its parameters, tags and deployment."""
    source = parameters.get("recipe")
    return RunRecord(
        id=run_id,
        recipe=_asked(parameters, sorted(tags)),
        source=source if isinstance(source, str) else "",
        overrides=list(parameters.get("overrides") or ()),
        tags=sorted(tags),
        deployment=str(deployment or ""),
        started_at=now_text(),
    )


def _asked(parameters: dict[str, Any], tags: list[str]) -> str:
    """Return what a run is of: a use of a model, or a recipe, whose file may be gone: the deployment's tags name it."""
    if "model" in parameters:
        return f"{parameters.get('what') or 'predictions'} of {parameters['model']}"
    recipe = parameters.get("recipe")
    if isinstance(recipe, dict):
        return str(recipe.get("name", "recipe"))
    tagged = [tag.removeprefix(RECIPE_TAG) for tag in tags if tag.startswith(RECIPE_TAG)]
    return tagged[0] if tagged else Path(str(recipe)).name.removesuffix(".yaml")


def now_text() -> str:
    """Return the time as records keep it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def record_path(home: Home, run_id: str) -> Path:
    """File of a record."""
    return home.runs / f"{file_name(run_id)}.json"


def lock_path(home: Home, run_id: str) -> Path:
    """Lock that a run holds as long as it lives."""
    return home.locks / f"run-{file_name(run_id)}.lock"


@contextmanager
def recorded(home: Home, record: RunRecord) -> Iterator[RunRecord]:
    """Keep the record true while the block runs, however it ends; the run's lock tells a living run from a dead one."""
    record.process, record.host = os.getpid(), socket.gethostname()
    lock = lock_path(home, record.id)

    def close(error: BaseException | None) -> None:
        record.status, record.error = ending_of(error, home)
        record.finished_at = now_text()
        os.truncate(lock, 0)
        record.write(home)

    with file_lock(lock), ending.closing(lambda: close(ending.TerminatedError())):
        with disk_errors(home.root):
            with lock.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, _LAST_WORDS_BYTES)
            record.write(home)
        try:
            with ending.undisguised():
                yield record
        except BaseException as error:
            with contextlib.suppress(OSError):  # the error that is under way matters more
                close(error)
            raise
        close(None)


def ending_of(error: BaseException | None, home: Home) -> tuple[Status, str]:
    """Return status and error of a run that ends with `error`: it failed, or was told to end."""
    error = ending.reason() or error
    if error is None:
        return "completed", ""
    if isinstance(error, Exception):
        error = as_trouble(error, home)
        return "failed", f"{type(error).__name__}: {error}"
    return "cancelled", type(error).__name__


def read_record(home: Home, run_id: str) -> RunRecord | None:
    """Return a run's record, or None where there is none that can be read."""
    return _read(record_path(home, run_id))


def _read(path: Path) -> RunRecord | None:
    try:
        return RunRecord.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def earlier_failure(home: Home, run_id: str) -> str:
    """Return why an earlier start of a run failed, or an empty text: a new start replaces its record."""
    record = read_record(home, run_id)
    if record is None:
        return ""
    record = settled(home, record)
    return record.error if record.status == "failed" else record.failed_before


def settled(home: Home, record: RunRecord) -> RunRecord:
    """Return the record as it is now: one that says `running` while no process works on it has failed."""
    if record.status != "running" or is_alive(home, record):
        return record
    now = read_record(home, record.id) or record  # it may have ended by itself since it was read
    if now.status != "running":
        return now
    return now.model_copy(update={"status": "failed", "error": KILLED, "finished_at": now_text()})


def note_unbegun(home: Home, record: RunRecord) -> bool:
    """Write down a run that has ended without a record: it was never begun. False where it has one by now."""
    with try_lock(lock_path(home, record.id)) as held:
        if not held or read_record(home, record.id) is not None:
            return False
        record.status = "failed"
        record.write(home)
        return True


def mark_killed(home: Home, record: RunRecord) -> RunRecord | None:
    """Write into the record, under the run's lock, that its process was killed; None where it lives or has ended."""
    with try_lock(lock_path(home, record.id)) as held:
        now = read_record(home, record.id) if held else None
        if now is None or now.status != "running":
            return None
        now.status, now.error, now.finished_at = "failed", KILLED, now_text()
        now.write(home)
        return now


def is_alive(home: Home, record: RunRecord) -> bool:
    """Whether the run's process still works on it."""
    return record.status == "running" and is_locked(lock_path(home, record.id))


def is_killed(home: Home, record: RunRecord) -> bool:
    """Whether it was a process of this machine that was killed, and that nobody has marked so yet."""
    here = record.status == "running" and record.host == socket.gethostname()
    return here and settled(home, record).status == "failed"


def all_runs(home: Home, recipe: str | None = None) -> list[RunRecord]:
    """Return the records (of a recipe), newest first; files that are not records are passed over."""
    records = []
    for path in home.runs.glob("*.json"):
        record = _read(path)
        if record is not None and recipe in (None, record.recipe):
            records.append(record)
    return sorted(records, key=lambda record: record.started_at, reverse=True)
