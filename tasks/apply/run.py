"""From a model and a graph to files that its users asked for."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from configs.errors import RecipeError
from configs.schema import Recipe
from configs.source_files import is_file, is_folder, user_path
from tasks.apply.formats import ENDINGS, HAS_IDS_BESIDE
from tasks.apply.needs import label_columns, label_order
from tasks.apply.published import Published
from tasks.processes.memory import PeakMemory
from tasks.stage import Listener, Parent, StageContext
from tasks.storage.artifacts import FULL_DISK, file_lock, output_errors
from tasks.storage.caching import PickleCache
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.file_names import beside, file_name
from tasks.storage.home import Home
from tasks.supervise import run_job

OutputKind = Literal["predictions", "embeddings", "model"]
_FORMATS: dict[OutputKind, dict[str, str]] = {
    "predictions": {"parquet": ".parquet", "npy": ".npy"},
    "embeddings": ENDINGS,
    "model": {"files": "", "safetensors": ".safetensors"},
}
_ID_FILES: dict[OutputKind, dict[str, str]] = {
    "predictions": {"node": "nodes", "link": "pairs", "graph": "graphs"},
    "embeddings": {"node": "nodes", "link": "nodes", "graph": "graphs", "triple": "nodes"},
    "model": {},
}
"""By task, the file of ids that says what to score."""


@dataclass(frozen=True)
class OutputRequest:
    """What somebody wants of a model."""

    what: OutputKind
    output: str | None = None
    format: str | None = None
    given: dict[str, str] = field(default_factory=dict)
    """`nodes`, `pairs` or `graphs`: a file of ids."""
    node_type: str | None = None

    def place(self, stem: str) -> tuple[Path, str]:
        """Return where to write and in which format; `stem` is the name where none is given. Raises RecipeError."""
        endings = _FORMATS[self.what]
        known = ", ".join(endings)
        if self.format is not None and self.format not in endings:
            raise RecipeError(f"--format {self.format} is none of {self.what}'s: {known}")
        chosen = self.format or next(iter(endings))
        if self.output is None:
            return Path(f"{file_name(stem)}-{self.what}{endings[chosen]}").resolve(), chosen
        path = user_path(self.output).resolve()
        by_ending = next((name for name, ending in endings.items() if ending and path.suffix == ending), None)
        if self.what != "model" and by_ending is None:
            raise RecipeError(f"--output {self.output} must end with {' or '.join(endings.values())}")
        if self.format is not None and by_ending not in (None, self.format):
            raise RecipeError(f"--format {self.format} and --output {self.output} contradict each other; leave one out")
        chosen = by_ending or chosen
        check_place(self.output, path, folder=self.what == "model" and chosen != "safetensors")
        return path, chosen

    def check(self, task: str) -> None:
        """Refuse files of ids that a model of the task has no use for. Raises RecipeError and DataError."""
        if task == "triple" and self.what == "predictions":
            raise RecipeError(
                "a model of triples completes them, which predict does not do yet; the filtered ranks of its splits "
                "are in the file of predictions of its run (graphmill inspect), and graphmill export embeddings writes "
                "its entities' rows"
            )
        expected = _ID_FILES[self.what].get(task)
        for name, path in self.given.items():
            if name != expected:
                raise RecipeError(
                    f"--{name}: this is a model of {task}s" + (f"; give --{expected}" if expected else "")
                )
            from tasks.ingest.tables.files import TableFiles

            TableFiles((path,)).column_names()
        if expected == "pairs" and not self.given:
            raise RecipeError("a link model scores pairs: give --pairs FILE with the columns source and target")
        if self.node_type is not None and (self.what != "embeddings" or task == "graph"):
            raise RecipeError("--node-type is for embeddings of nodes")


def check_place(output: str, path: Path, *, folder: bool = False) -> None:
    """Refuse what no file (or folder) can be written to, before all the work. Raises UserError."""
    if not folder:
        if is_folder(path):
            raise RecipeError(f"--output {output} is a folder; name a file")
        is_file(path)  # a device or a pipe would make room for the file that is renamed to it
    there = next(folder for folder in path.parents if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise RecipeError(f"--output {output}: {there} is no folder that may be written to")
    try:  # root may write everywhere by its rights, and cannot in /sys or /proc
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        if error.errno not in FULL_DISK:
            raise RecipeError(f"--output {output}: nothing can be written to {there} ({error.strerror})") from error


def write_outputs(
    home: Home,
    listener: Listener,
    published: Published,
    request: OutputRequest,
    recipe: Recipe,
    parents: dict[str, Parent],
) -> dict[str, Any]:
    """Score in a process of its own and put the files in place, whole or not at all; says what was written.

    The request has `output` and `format`, the recipe batch size, device and threads, `parents` `ingest` and
    `partition`.

    Raises:
        UserError: ids that the data has not, or a graph that does not fit the model.
        StageError: the process died, or the disk is full.
    """
    from tasks.apply.outputs import ids_path, refuse_other_ids
    from tasks.apply.worker import ServeJob

    assert request.output is not None
    assert request.what != "model"
    output, ingest, graph = Path(request.output), parents["ingest"], parents["partition"]
    labels = published.needs.labels if published.needs is not None and request.what == "predictions" else None
    columns = label_columns(ingest.manifest, DatasetStore(ingest.folder, ingest.manifest))
    order = label_order(labels, columns)  # may refuse: before anything is written
    work = beside(output, ".partial")
    name = hashlib.sha256(str(output).encode()).hexdigest()[:16]
    with file_lock(home.locks / f"output-{name}.lock"), output_errors(output):
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        job = ServeJob(
            what=request.what,
            format=request.format or "parquet",
            model=published.folder,
            graph=graph.folder,
            dataset=ingest.folder,
            work=work,
            own_graph=graph.manifest.digest == published.lineage["partition"]["digest"],
            given={key: user_path(path).resolve() for key, path in request.given.items()},
            node_type=request.node_type,
            classes=published.classes(DatasetStore(ingest.folder, ingest.manifest)),
            batch_size=recipe.evaluate.batch_size,
            device=recipe.train.device,
            threads=recipe.train.threads,
            label_order=order,
        )
        context = StageContext(request.what, work, home, PickleCache(home), listener)
        try:
            with PeakMemory() as memory:
                fields = run_job("tasks.apply.worker", job, context)
            refuse_other_ids(work, output)
            # The ids first: a matrix that is there has its ids.
            for file in reversed(fields.pop("files")):
                (work / file).replace(ids_path(output) if file.endswith(".ids.parquet") else output)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    ids = str(ids_path(output)) if job.format in HAS_IDS_BESIDE else None
    return {"output": str(output), "ids": ids, **fields, "peak_bytes": memory.peak_bytes}
