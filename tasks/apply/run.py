"""From a model and a graph to files that its users asked for."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from configs.errors import RecipeError
from configs.layout_options import LayoutOptions
from configs.matching import did_you_mean, listed
from configs.schema import Recipe
from configs.source_files import is_file, is_folder, user_path
from tasks.apply.completion.asked import CompletionRequest
from tasks.apply.job import MappedData, ServeJob
from tasks.apply.layers import keeping
from tasks.apply.model.needs import label_columns, label_order
from tasks.apply.model.published import Published
from tasks.apply.vector_files.formats import COMPLETION_ENDINGS, ENDINGS, HAS_IDS_BESIDE, ids_path, refuse_other_ids
from tasks.calls import load_stage, mark_used
from tasks.explain.asked import ExplainRequest
from tasks.kinds.judged import Threshold
from tasks.kinds.of import kind_named
from tasks.processes.memory import PeakMemory
from tasks.stage import InnerListener, Listener, Parent, StageContext, run_stage, stage_key
from tasks.storage.artifacts import FULL_DISK, file_lock, output_errors
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.file_names import beside, file_name
from tasks.storage.home import Home
from tasks.storage.home_files.caching import PickleCache
from tasks.storage.manifests import TaskManifest
from tasks.supervise import run_job

OutputKind = Literal["predictions", "embeddings", "relations", "layout", "model", "explanations"]
_FORMATS: dict[OutputKind, dict[str, str]] = {
    "predictions": {"parquet": ".parquet", "npy": ".npy", "csv": ".csv", "csv.gz": ".csv.gz"},
    "embeddings": ENDINGS,
    "relations": ENDINGS,
    "layout": {"parquet": ".parquet"},
    "model": {"files": "", "safetensors": ".safetensors"},
    "explanations": {"parquet": ".parquet"},
}


@dataclass(frozen=True)
class OutputRequest:
    """What somebody wants of a model."""

    what: OutputKind
    output: str | None = None
    format: str | None = None
    given: dict[str, str] = field(default_factory=dict)
    """`nodes`, `edges`, `pairs`, `graphs`: a file of ids; `queries`: of triples to complete, `triples`: to explain."""
    node_type: str | None = None
    asked: CompletionRequest = field(default_factory=CompletionRequest)
    """What is asked of a model of triples."""
    keep_layers: bool = False
    """Whether all layers' outputs are kept, and taken from those of an earlier graph where they are the same."""
    layout: LayoutOptions = field(default_factory=LayoutOptions)
    """How vectors are laid out."""
    threshold: str | None = None
    """From which probability a class is predicted (`tasks.apply.run`); None: the likeliest is."""
    names_splits: bool = True
    """Whether predictions say of each row which split it is in."""
    explained: ExplainRequest = field(default_factory=ExplainRequest)
    """What is explained, and how."""

    def placed(self, stem: str, task: str) -> OutputRequest:
        """Return it with where to write and the format; `stem` is the name where none is given.

        Completions of a query on the command line are shown where no file is named: then `output` stays None. Raises
        RecipeError: a place or a format that cannot be, or what a model of the task has no use for; DataError: a file
        of ids that cannot be read.
        """
        completes = self.what == "predictions" and kind_named(task).asked_by == "queries"
        is_shown = completes and not (self.output or self.format or self.given)
        if is_shown:
            self.check(task)
            return self
        path, chosen = self._place(stem, COMPLETION_ENDINGS if completes else _FORMATS[self.what])
        placed = replace(self, output=str(path), format=chosen)
        placed.check(task)
        return placed

    def _place(self, stem: str, endings: dict[str, str]) -> tuple[Path, str]:
        listed = ", ".join(endings)
        if self.format is not None and self.format not in endings:
            raise RecipeError(f"--format {self.format} is none of {self.what}'s: {listed}")
        chosen = self.format or next(iter(endings))
        if self.output is None:
            return Path(f"{file_name(stem)}-{self.what}{endings[chosen]}").resolve(), chosen
        path = user_path(self.output).resolve()
        by_ending = next((name for name, ending in endings.items() if ending and path.name.endswith(ending)), None)
        if self.what != "model" and by_ending is None:
            raise RecipeError(f"--output {self.output} must end with {' or '.join(endings.values())}")
        if self.format is not None and by_ending not in (None, self.format):
            raise RecipeError(f"--format {self.format} and --output {self.output} contradict each other; leave one out")
        chosen = by_ending or chosen
        check_place(self.output, path, folder=self.what == "model" and chosen != "safetensors")
        return path, chosen

    def check(self, task: str) -> None:
        """Refuse files of ids and options that a model of the task has no use for. Raises RecipeError and DataError."""
        kind = kind_named(task)
        lists = self.what == "predictions" and kind.lists_for_nodes and set(self.given) == {"nodes"}
        if kind.asked_by != "queries":
            (replace(self.asked, k=None) if lists else self.asked).refuse(task)
            if self.what == "relations":
                raise RecipeError(f"relations have rows in models of knowledge graphs; this is a model of {task}s")
        if self.what == "explanations":
            self.explained.check(kind.explained_by, kind.words, has_file=bool(self.given))
        files = {"predictions": kind.asked_by, "embeddings": kind.vectors_of, "explanations": kind.explained_by}
        expected = files.get(self.what)
        for name, path in self.given.items():
            if name != expected and not lists:
                raise RecipeError(
                    f"--{name}: this is a model of {task}s" + (f"; give --{expected}" if expected else "")
                )
            from tasks.ingest.tables.files import TableFiles

            TableFiles((path,)).column_names()
        if expected == "queries":
            self.asked.check(has_file=bool(self.given), is_shown=self.output is None)
        if expected == "pairs" and not self.given and self.what == "predictions":
            raise RecipeError(
                "a link model scores pairs: give --pairs FILE with the columns source and target; or --nodes FILE of "
                "sources, and it lists the best targets of each (-k)"
            )
        if self.threshold not in (None, "none"):
            split_threshold(self.threshold)
            if self.what != "predictions" or not kind.decides:
                raise RecipeError(f"--threshold is for classes of nodes, edges or graphs; this is a model of {task}s")
            if self.format == "npy":
                raise RecipeError("--threshold decides on predictions, and .npy holds probabilities; leave it out")
        if self.node_type is not None and (self.what != "embeddings" or kind.vectors_of != "nodes"):
            raise RecipeError("--node-type is for embeddings of nodes")


def check_place(output: str, path: Path, *, folder: bool = False) -> None:
    """Refuse what no file (or folder) can be written to, before all the work. Raises UserError."""
    if not folder:
        if is_folder(path):
            raise RecipeError(f"--output {output} is a folder; name a file")
        is_file(path)  # a device or a pipe would make room for the file that is renamed to it
    there = next(folder for folder in path.parents if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise RecipeError(f"--output {output}: {there} is not a folder that you may write to")
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

    The request is one that was `placed`, the recipe batch size, device and threads, `parents` `ingest` and `partition`.
    Raises UserError: ids that the data has not, or a graph that does not fit the model; StageError: the process died,
    or the disk is full.
    """
    assert request.what != "model"
    ingest, graph = parents["ingest"], parents["partition"]
    store = DatasetStore(ingest.folder, ingest.manifest)
    labels = published.needs.labels if request.what == "predictions" else None
    order = label_order(labels, label_columns(ingest.manifest, store))  # may refuse: before anything is written
    threshold = _threshold(request, published, graph.manifest, listener)
    own_graph = graph.manifest.digest == published.lineage["partition"]["digest"]
    places = request.what == "layout" and published.recipe.is_layout and not own_graph
    mapped = MappedData.of(published, home) if places else None
    chosen = recipe.evaluate.explain
    options = request.explained.options if chosen is None else chosen.model_dump(mode="json")
    with ExitStack() as stack:
        work = stack.enter_context(_work_folder(home, request.output))
        kept = None
        if request.keep_layers:
            kept = stack.enter_context(keeping(home, listener, published, parents, recipe.snapshot.as_of))
        job = ServeJob(
            what=request.what,
            format=request.format or "parquet",
            model=published.folder,
            graph=graph.folder,
            dataset=ingest.folder,
            work=work,
            own_graph=own_graph,
            mapped=mapped,
            given={key: user_path(path).resolve() for key, path in request.given.items()},
            node_type=request.node_type,
            classes=published.needs.classes,
            batch_size=recipe.evaluate.batch_size,
            memory=recipe.evaluate.memory,
            device="cpu" if request.keep_layers else recipe.train.device,
            keep=None if kept is None else kept.job,
            threads=recipe.train.threads,
            asked=request.asked,
            is_shown=request.output is None,
            label_order=order,
            threshold=threshold,
            names_splits=request.names_splits,
            layout=request.layout,
            explained=replace(request.explained, model=published.name, options=options),
            seed=recipe.seed,
        )
        context = StageContext(request.what, work, home, PickleCache(home), listener)
        with PeakMemory() as memory:
            fields = run_job("tasks.apply.worker", job, context)
        for warning in fields.pop("warnings", ()):
            context.warn(warning)
        if kept is not None:
            kept.finish(fields.pop("kept"), context.warn)
            fields["kept"] = kept.written
        files = fields.pop("files")
        ids = None
        if request.output is not None:
            output = Path(request.output)
            refuse_other_ids(work, output)
            for file in reversed(files):  # the ids first: a matrix that is there has its ids
                place = output.with_suffix(".html") if file.endswith(".html") else output
                (work / file).replace(ids_path(output) if file.endswith(".ids.parquet") else place)
            ids = str(ids_path(output)) if job.format in HAS_IDS_BESIDE else None
    if request.what == "explanations":
        fields["page"] = str(Path(str(request.output)).with_suffix(".html"))
    return {"output": request.output, "ids": ids, **fields, "peak_bytes": memory.peak_bytes}


def _threshold(
    request: OutputRequest, published: Published, manifest: TaskManifest, listener: Listener
) -> Threshold | None:
    """Return the threshold that is asked for, else the model's own, which is said. Raises RecipeError."""
    if request.threshold is not None:
        return threshold_of(request.threshold, manifest, published.needs.classes)
    explains = request.what == "explanations"
    threshold = published.needs.threshold if explains or request.what == "predictions" else None
    if threshold is not None and request.explained.of_class is None:
        said = f"{(published.needs.classes or ['0', '1'])[threshold.code]} from probability {threshold.probability:.4g}"
        other = "--class: another is explained" if explains else "--threshold none: the likelier"
        listener.message(request.what, f"predicted is {said} on (evaluate.threshold; {other})")
    return threshold


@contextmanager
def _work_folder(home: Home, output: str | None) -> Iterator[Path]:
    """Make a folder beside a file that is to be written, while nobody else writes that; else among temporary ones."""
    if output is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
        return
    path = Path(output)
    work = beside(path, ".partial")
    name = hashlib.sha256(output.encode()).hexdigest()[:16]
    with file_lock(home.locks / f"output-{name}.lock"), output_errors(path):
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


_FORMS = "a probability between 0 and 1, such as 0.3, or of one of several classes fraud=0.3"


def split_threshold(text: str) -> tuple[str | None, float]:
    """Return the class that is named (`fraud=0.3`), if any, and the probability (`0.3`). Raises RecipeError."""
    name, _, number = text.rpartition("=")
    try:
        probability = float(number)
    except ValueError:
        probability = float("nan")
    if not 0 < probability < 1:
        raise RecipeError(f"--threshold {text}: give {_FORMS}")
    return name.strip() or None, probability


def threshold_of(text: str, manifest: TaskManifest, names: Sequence[str] | None) -> Threshold | None:
    """Return the threshold of a model's classes, which may have names; None: the likelier class is predicted (`none`).

    Raises RecipeError: the model decides between no classes, or the class is not known.
    """
    if text == "none":
        return None
    name, probability = split_threshold(text)
    kind = manifest.label_type
    if not kind.has_classes:
        what = "several tasks" if manifest.heads else f"a {manifest.task_type}"
        raise RecipeError(f"--threshold is for classes, and {manifest.dataset} is {what}; leave it out")
    words = list(names or map(str, range(manifest.num_classes))) if kind.one_of_many else ["0", "1"]
    if name is None and kind.one_of_many:
        choices = listed([f"{word}={probability:g}" for word in words])
        raise RecipeError(f"--threshold {text}: say of which class: {choices}")
    if name is not None and name not in words:
        raise RecipeError(
            f"--threshold {text}: no class {name!r}{did_you_mean(name, words)}; there are {listed(words)}"
        )
    code = 1 if name is None else words.index(name)
    if not kind.one_of_many and code == 0:
        raise RecipeError(f"--threshold {text}: give that of class 1, of which predictions have the probability")
    return Threshold(code, probability)


_STAGES = ("preprocess", "components", "partition")


def prepare_for(published: Published, recipe: Recipe, ingest: Parent, context: StageContext) -> Parent:
    """Return a partition's artifact of ingested data as the model reads it; what is there is found.

    The model's `preprocess` and `partition` sections and fitted transforms are taken, and of `recipe` the moment and
    which components stay. Raises UserError: the model cannot read such data; StageError: the disk is full, say; that
    says nothing about the model.
    """
    trained = published.recipe
    spread = {name: getattr(recipe.preprocess, name) for name in recipe.preprocess.runtime_fields}
    preprocess = trained.preprocess.model_copy(update=spread)
    as_trained = recipe.model_copy(update={"preprocess": preprocess, "partition": trained.partition})
    parents = {"ingest": ingest}
    key = stage_key(load_stage("preprocess"), as_trained, parents, context.home)
    fitted = published.recipe_for(as_trained, key, DatasetStore(ingest.folder, ingest.manifest))
    listener = InnerListener(context.listener, context.stage, f"data for {published.name}")
    for name in _STAGES:
        outcome = run_stage(
            load_stage(name), fitted, parents, context.home, listener=listener, map_shards=context.map_shards
        )
        mark_used(outcome.folder)
        parents[name] = outcome.parent
    return parents["partition"]
