"""What the evaluation's own process runs (started by supervise.py).

A process of its own, so that the model, the graph's pages and OpenMP's threads leave with it, and the flow's process
stays small. It writes its outcome into the work folder and says on standard output how far it is.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from configs.errors import DataError, GraphmillError, error_of, kind_of
from configs.registry import EVALUATORS
from tasks.evaluate.controls.features import ControlledGraph
from tasks.evaluate.controls.several import SeveralControls
from tasks.evaluate.controls.suite import Controls
from tasks.evaluate.decisions import DecisionsSeen
from tasks.evaluate.diagnostics import diagnose
from tasks.evaluate.intervals import SureOfEach
from tasks.evaluate.ranked import diagnose_ranked, list_length, recommended
from tasks.evaluators import metrics
from tasks.evaluators.evaluators import Evaluator
from tasks.evaluators.making import make_evaluator
from tasks.evaluators.metrics import Array
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.ranked_rows import RankedRows
from tasks.evaluators.several import HeadEvaluator, SeveralTasks, of_head
from tasks.inference.opened import Opened, ScoringJob, open_model
from tasks.inference.predictor import link_relations
from tasks.processes.mapped import rows_at_random
from tasks.sampling.relational.links import ranked_links
from tasks.storage.controls import CONSTANT_CONTROLS
from tasks.storage.graph_facts import relations_of
from tasks.storage.heads import HeadView, head_views
from tasks.storage.ids import relation_names
from tasks.storage.manifests import GraphManifest
from tasks.supervise import ERROR_FILE, finish_job, read_job, report_progress, write_error

# Nodes of no split are predicted too while their vectors and scores are at most this many numbers (1 GiB of float32).
_MAX_UNSPLIT_NUMBERS = 1 << 28
_MAX_NEGATIVE_ROWS = 5_000_000
_SECONDARY: dict[str, tuple[dict[str, Any], ...]] = {
    "multiclass": ({"name": "accuracy"}, {"name": "f1", "average": "macro"}),
    "binary": ({"name": "rocauc"}, {"name": "average_precision"}, {"name": "accuracy"}),
    "multilabel": ({"name": "rocauc"}, {"name": "average_precision"}, {"name": "f1", "average": "micro"}),
    "regression": ({"name": "rmse"}, {"name": "mae"}, {"name": "r2"}),
    "link": ({"name": "average_precision"}, {"name": "rocauc"}, {"name": "mrr"}),
    "triple": ({"name": "mrr"},),
    "ranking": (),
}
_BY_RELATION = ({"name": "rocauc"}, {"name": "pr_auc"}, {"name": "f1"}, {"name": "average_precision"})
"""Of links that are predicted by relation, as GATNE (KDD 2019) has them."""


@dataclass(frozen=True, kw_only=True)
class EvaluateJob(ScoringJob):
    """What is evaluated, and where."""

    checkpoint: Path
    graph: Path
    """Folder of the partition's artifact."""
    evaluator: dict[str, Any]
    splits: list[str]
    predictions: bool
    label_shares: list[float]
    """Shares of labels at which vectors are measured; none: the usual ones."""
    most_labelled: int
    """Nodes of which they are measured, at most."""
    copies: bool = False
    """Whether each machine has a home of its own, and keeps a copy of the outcome."""


class Evaluation:
    """One checkpoint on one graph."""

    def __init__(self, job: EvaluateJob, local_rank: int = 0) -> None:
        """Open the graph and the model; `local_rank`: see `open_model`."""
        from tasks.evaluate.predictions import PredictionWriter
        from tasks.train.state.checkpoint import load_model

        self.job = job
        self.opened = opened = open_model(job, job.graph, lambda: load_model(job.checkpoint), local_rank)
        self.store, self.ids, self.names = opened.store, opened.ids, opened.names
        self.model, self.predictor = opened.model, opened.predictor
        manifest = self.store.manifest
        self.evaluator = make_evaluator(EVALUATORS.config(job.evaluator), manifest)
        self._measure = partial(measure, self.evaluator, secondary_evaluators(manifest, self.evaluator))
        self.heads = head_views(manifest)
        self.writer = PredictionWriter(job.work, manifest.task_type, self.names, heads=self.heads)
        self.notes: list[str] = []
        self.rows = 0
        self.covered: dict[str, dict[str, Any]] = {}

    def run(self) -> dict[str, Any]:
        """Evaluate all splits; returns the fields of EvalReport."""
        measured: dict[str, dict[str, float]] = {}
        controlled: dict[str, dict[str, dict[str, float]]] = {}
        report: dict[str, Any] = {}
        by_part: dict[str, dict[str, Any]] = {}
        telling: dict[str, int] = {}
        intervals: dict[str, dict[str, Any]] = {}
        splits, manifest = self.job.splits, self.store.manifest
        drawn = "test" if "test" in splits else splits[-1]
        decided = self._deciding(drawn)
        judges = self.evaluator.heads if isinstance(self.evaluator, SeveralTasks) else [self.evaluator]
        predictions = {
            "node": self._nodes,
            "link": self._links,
            "graph": self._graphs,
            "triple": self._triples,
        }[manifest.task]
        if manifest.ranking is not None:
            predictions = self._rankings
        with self.writer, self._reading(), fitted_controls(self.opened, self.job.work) as controls:
            for number, (split, prediction) in enumerate(predictions(), start=1):
                sure = SureOfEach(self._measure, judges, prediction)
                measured[split] = sure.values
                telling[split] = self._of_first(prediction).telling_rows
                for name, values in controls.measured(split, prediction, sure.compare):
                    controlled.setdefault(name, {})[split] = values
                    sure.keep(name, values)
                intervals[split] = sure.intervals()
                if split == drawn:
                    report = {"split": split, **self._diagnosed(split, prediction)}
                for view, one in decided:
                    one.see(split, prediction if view is None else of_head(prediction, view))
                for what, found in self._tell_parts(split, prediction, controls).items():
                    by_part.setdefault(what, {}).update(found)
                report_progress(number, len(splits), "splits", split)
        report.update(self._decisions(decided))
        report.update(by_part)
        self.notes += controls.notes
        report.update(self._vectors())
        if self.notes:
            report["notes"] = self.notes
        return {
            "evaluator": self.evaluator.config.name,
            "metric": self.evaluator.metric,
            "metrics": measured,
            "controls": controlled,
            "predictions": self.writer.path.name if self.job.predictions else None,
            "report": {
                **report,
                "higher_is_better": self.evaluator.higher_is_better,
                "telling_rows": telling,
                "intervals": intervals,
            },
            "rows": self.rows,
        }

    def _of_first(self, prediction: Prediction) -> Prediction:
        """Return what is said of the task that judges the model."""
        return of_head(prediction, self.heads[0]) if self.heads else prediction

    def _deciding(self, drawn: str) -> list[tuple[HeadView | None, DecisionsSeen]]:
        """Return what finds thresholds and temperatures, for each task."""
        if not self.heads:
            return [(None, DecisionsSeen(self.store.manifest.task_type, drawn))]
        return [(view, DecisionsSeen(view.head.task_type, drawn)) for view in self.heads]

    @staticmethod
    def _decisions(decided: list[tuple[HeadView | None, DecisionsSeen]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for view, one in decided:
            found |= one.found if view is None else {}
        by_task = {view.head.name: one.found for view, one in decided if view is not None and one.found}
        return found | ({"tasks": by_task} if by_task else {})

    def _by_part(self, split: str, prediction: Prediction) -> tuple[str, dict[str, dict[str, float]]]:
        """Return the metrics of a split's parts, whose mean its own are, and what these are."""
        what, parts = "by_negatives", dict(prediction.by_kind())
        if prediction.relations is not None:
            names = relations_of(self.store.manifest)
            what, parts = "by_relation", {names[relation]: own for relation, own in prediction.by_relation()}
        return what, {name: self._measure(own) for name, own in parts.items()}

    def _tell_parts(
        self, split: str, prediction: Prediction, controls: Controls | SeveralControls
    ) -> dict[str, dict[str, Any]]:
        """Return the metrics of a split's parts, the model's and the controls', and note the first one's."""
        if isinstance(controls, SeveralControls):
            return {}
        what, parts = self._by_part(split, prediction)
        if not parts:
            return {}
        found = {"model": parts}
        found |= {name: self._by_part(split, own)[1] for name, own in controls.predictions(split, prediction)}
        metric = self.evaluator.metric
        for name, values in found.items():
            if name not in CONSTANT_CONTROLS:
                each = ", ".join(f"{part} {own[metric]:.4f}" for part, own in values.items())
                self.notes.append(f"{split}, {metric} {what.replace('_', ' ')}, {name}: {each}")
        return {what: {split: found}}

    def _reading(self) -> AbstractContextManager[None]:
        """Read the rows of a model's table, where it has one, as they are asked for."""
        return rows_at_random(self.model.table) if self.model.table is not None else nullcontext()

    def _vectors(self) -> dict[str, Any]:
        """Describe the vectors of a model that is these."""
        from models.vectors import VectorModel
        from tasks.evaluate.vectors import SHARES, describe_vectors

        if not isinstance(self.model, VectorModel):
            return {}
        job = self.job
        found = describe_vectors(
            self.model, self.store, self.names, shares=job.label_shares or SHARES, most_labelled=job.most_labelled
        )
        self.notes += found.pop("notes", [])
        return {"vectors": found}

    def _nodes(self) -> Iterator[tuple[str, Prediction]]:
        """Score the nodes of all splits, and those of no split for the file, in one pass through the layers."""
        indices = {split: self.predictor.split_array(f"{split}_idx") for split in self.job.splits}
        wanted = np.unique(np.concatenate([np.asarray(index, np.int64) for index in indices.values()]))
        rest = self._unsplit() if self.job.predictions else np.empty(0, np.int64)
        everything = np.union1d(wanted, rest)
        scores = self.predictor.node_scores(self.model, everything)
        label = self.store["label"]
        for split, index in indices.items():
            # Where one split is all there is, its scores are not copied.
            own = scores if np.array_equal(index, everything) else scores[np.searchsorted(everything, index)]
            yield split, self._items(index, split, Prediction(scores=own, label=np.asarray(label[index])))
        if len(rest):
            place = np.searchsorted(everything, rest)
            self._items(rest, None, Prediction(scores=scores[place], label=np.asarray(label[rest])))

    def _rankings(self) -> Iterator[tuple[str, Prediction]]:
        """Rank all candidates for the tasks of all splits, and for those of no split for the file."""
        k = list_length(self.evaluator.metric)
        for split in self.job.splits:
            tasks = np.asarray(self.predictor.split_array(f"{split}_idx"), np.int64)
            yield split, Prediction(ranked=self._listed(tasks, split, k))
        rest = self._unsplit() if self.job.predictions else np.empty(0, np.int64)
        if len(rest):
            self._listed(rest, None, k)

    def _listed(self, tasks: Array, split: str | None, k: int) -> RankedRows:
        ranked, lists = self.predictor.ranked(self.model, tasks, k)
        self.rows += len(tasks)
        if self.job.predictions:
            self.writer.lists(self.ids.columns(tasks), split, self.ids, lists)
        if split is not None:
            self.covered[split] = recommended(lists, len(ranked_links(self.store).candidates))
        return ranked

    def _unsplit(self) -> Array:
        """Nodes of the labelled type that are in no split, ascending."""
        free = np.ones(self.store.manifest.num_nodes, bool)
        for split in ("train", "valid", "test"):
            index = self.store.get(f"{split}_idx")
            if index is not None:
                free[index] = False
        nodes = np.flatnonzero(free)
        nodes = nodes[self.ids.of_target_type(nodes)]
        if len(nodes) * max(self.model.facts.out_dim, self.model.config.hidden_dim) > _MAX_UNSPLIT_NUMBERS:
            self.notes.append(f"{len(nodes):,} nodes of no split are left out of the predictions: too many")
            return np.empty(0, np.int64)
        return nodes

    def _graphs(self) -> Iterator[tuple[str, Prediction]]:
        for split in self.job.splits:
            prediction = self.predictor.predict(self.model, split)
            yield split, self._items(self.store[f"{split}_idx"], split, prediction)

    def _items(self, index: Array, split: str | None, prediction: Prediction) -> Prediction:
        """Write what is predicted of nodes or graphs, where that is wanted."""
        self.rows += len(index)
        if self.job.predictions:
            assert prediction.label is not None
            assert prediction.scores is not None
            ids = self.ids.graph_columns(index) if self.store.manifest.task == "graph" else self.ids.columns(index)
            self.writer.items(ids, split, prediction.label, prediction.scores)
        return prediction

    def _links(self) -> Iterator[tuple[str, Prediction]]:
        for split in self.job.splits:
            prediction = self.predictor.predict(self.model, split)
            positive, negative = prediction.pairs()
            self.rows += positive.size + negative.size
            if self.job.predictions:
                rank = metrics.ranks(positive, negative)
                true, false = link_relations(self.store, split) or (None, None)
                self._pairs(self.store[f"{split}_edges"], split, 1, positive, rank, true)
                given = self.store.get(f"{split}_negative")
                if given is not None and negative.size <= _MAX_NEGATIVE_ROWS:
                    self._pairs(given.reshape(-1, 2), split, 0, negative.ravel(), None, false)
                else:
                    why = "drawn at random" if given is None else "too many"
                    self.notes.append(f"{negative.size:,} negative edges of {split} are left out of the file: {why}")
            yield split, prediction

    def _triples(self) -> Iterator[tuple[str, Prediction]]:
        for split in self.job.splits:
            prediction = self.predictor.predict(self.model, split)
            ranks = prediction.true_ranks()
            edges = self.store[f"{split}_edges"]
            self.rows += len(ranks)
            if self.job.predictions:
                ends = self.ids.columns(edges[:, 0], "head") | self.ids.columns(edges[:, 1], "tail")
                names = relation_names(self.opened.dataset)
                relation = names.take(pa.array(np.asarray(self.store[f"{split}_relation"])))
                self.writer.triples(ends, relation, split, *np.split(ranks.mean, 2))
            yield split, prediction

    def _diagnosed(self, split: str, prediction: Prediction) -> dict[str, Any]:
        """Return what there is to draw about a split."""
        from models.knowledge import KnowledgeModel
        from tasks.evaluate.triples import diagnose_triples

        manifest = self.store.manifest
        if prediction.ranked is not None:
            return {"ranked": diagnose_ranked(prediction.ranked) | self.covered.get(split, {})}
        if manifest.task != "triple":
            kind = self.heads[0].head.task_type if self.heads else manifest.task_type
            return diagnose(self._of_first(prediction), kind, self.names)
        assert isinstance(self.model, KnowledgeModel)
        splits, names = self.predictor.triple_splits, relation_names(self.opened.dataset)
        return diagnose_triples(self.model, splits, split, prediction.true_ranks(), names.to_pylist())

    def _pairs(
        self, pairs: Array, split: str, label: int, score: Array, rank: Array | None, relation: Array | None = None
    ) -> None:
        pairs = np.asarray(pairs)
        ends = self.ids.columns(pairs[:, 0], "source") | self.ids.columns(pairs[:, 1], "target")
        if relation is not None:
            ends["relation"] = pa.array(relations_of(self.store.manifest)).take(pa.array(relation))
        self.writer.edges(ends, split, label, score, rank)


@contextmanager
def fitted_controls(opened: Opened, work: Path) -> Iterator[Controls | SeveralControls]:
    """Fit what the model is compared with; its scratch files in `work` go with it."""
    from models.vectors import VectorModel

    model = opened.model
    with tempfile.TemporaryDirectory(dir=work) as scratch:
        graph = ControlledGraph(opened.store, opened.dataset, opened.ids, opened.predictor, Path(scratch))
        if opened.store.manifest.heads:
            yield SeveralControls(graph)
            return
        vectors = model if isinstance(model, VectorModel) and not model.scores_relations else None
        yield Controls(graph, opened.model.facts.out_dim, vectors)


def secondary_evaluators(graph: GraphManifest, primary: Evaluator) -> list[Evaluator]:
    """Return further metrics that cost little, beside the one that a model is judged by."""
    made: list[Evaluator] = []
    for view in head_views(graph):
        configs = (EVALUATORS.config(dict(c)) for c in _SECONDARY[view.head.task_type])
        made += [HeadEvaluator(config, graph, view) for config in configs]
    wanted = () if graph.heads else _SECONDARY[graph.task_type]
    if graph.task_type == "link" and graph.num_relations:
        wanted = _BY_RELATION
    made += [make_evaluator(EVALUATORS.config(dict(c)), graph) for c in wanted]
    return [extra for extra in made if extra.metric != primary.metric]


def measure(evaluator: Evaluator, extras: Sequence[Evaluator], prediction: Prediction) -> dict[str, float]:
    """Return all metrics of a prediction, the evaluator's own first. Raises DataError where that is not defined."""
    values = evaluator(prediction)
    for extra in extras:
        with suppress(DataError):  # a further metric may be undefined (one class only)
            values = {**extra(prediction), **values}
    first = {evaluator.metric: values.pop(evaluator.metric)}
    if isinstance(evaluator, SeveralTasks):  # one task after the other
        tasks = [head.view.head.name for head in evaluator.heads]
        values = {name: values[name] for name in sorted(values, key=lambda one: tasks.index(one.rpartition(".")[0]))}
    return {**first, **values}


def evaluate(job: EvaluateJob) -> dict[str, Any]:
    """Return what rank 0 has found, on all ranks where there are several. Raises what it raised."""
    outcome = _outcome(job)
    if "kind" in outcome:
        raise error_of(outcome["kind"], outcome["message"])
    fields: dict[str, Any] = outcome["fields"]
    return fields


def _outcome(job: EvaluateJob) -> dict[str, Any]:
    """Evaluate; return rank 0's `fields`, or `kind` and `message` of its error once all have left in peace."""
    import torch

    from tasks.evaluate.ranks import send_files, together
    from tasks.train.ranks.collectives import from_main, joined
    from tasks.train.strategies.base import Ranks

    ranks = Ranks.here()
    evaluation = Evaluation(job, ranks.local_rank)
    if ranks.world_size == 1:
        return {"fields": evaluation.run()}
    outcome: dict[str, Any] = {}
    with joined(ranks, torch.device("cpu")):
        with together(evaluation.opened, ranks) as predictor:
            if predictor is not None:
                evaluation.predictor = predictor
                try:
                    outcome = {"fields": evaluation.run()}
                except GraphmillError as error:
                    if predictor.interrupted:
                        raise
                    outcome = {"kind": kind_of(error), "message": str(error)}
        outcome = from_main(outcome)
        if job.copies and job.predictions and "fields" in outcome:
            send_files(job.work, [outcome["fields"]["predictions"]], writes=ranks.local_rank == 0)
    return outcome


def main(job_path: Path) -> int:
    """Evaluate; only rank 0 has something to say, and the first rank of each home."""
    rank = int(os.environ.get("RANK", "0"))
    job = read_job(job_path, EvaluateJob)
    if rank == 0 or (job.copies and os.environ["LOCAL_RANK"] == "0"):
        return finish_job(job_path, EvaluateJob, evaluate)
    from tasks.train.ranks.failures import final_error

    try:
        _outcome(job)
    except Exception as error:
        final = final_error(error, rank)
        if final is None:
            raise
        write_error(job_path.with_name(ERROR_FILE), final)
        return 1
    return 0
