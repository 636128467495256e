"""What serving's own process runs (started by `tasks.supervise`): scores and vectors of a registered model.

Nodes, pairs and graphs are scored as evaluation scores them: full neighbourhoods, layer by layer where the graph is
large; rows of typed graphs as of their moments, by sampling. What is written is streamed, so that memory does not grow
with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from configs.errors import DataError, RecipeError, StageError
from configs.matching import did_you_mean
from tasks.apply.completion.names import EntityNames
from tasks.apply.given import check_known, file_columns, ids_are_texts, naming, read_ids, read_rows
from tasks.apply.job import ServeJob
from tasks.apply.model.fit import check_facts, refuse_node_embeddings
from tasks.apply.model.row_ids import find_rows as find_learnt_rows
from tasks.apply.vector_files.formats import COMPLETION_ENDINGS, ENDINGS
from tasks.apply.vector_files.writers import MatrixVectors, as_probabilities, open_vectors
from tasks.evaluate.predictions import FILE_NAME, PredictionWriter
from tasks.evaluate.ranked import list_length
from tasks.inference.opened import open_model
from tasks.inference.rule import Rule
from tasks.storage.csv_output import as_csv
from tasks.storage.file_names import file_name
from tasks.storage.graph_facts import relations_of
from tasks.storage.graph_store import Array, slices
from tasks.storage.heads import head_views
from tasks.storage.ids import AT_MOMENTS, at_moments, find_rows, relation_names
from tasks.storage.manifests import SPLITS
from tasks.supervise import finish_job, report_progress

_ROWS = 1 << 16
Output = tuple[slice, dict[str, pa.Array], Array]
"""Place among the nodes or graphs wanted, columns of ids (n,) each, and what the model computes: float32 (n, C)."""


class Serving:
    """One model on one graph."""

    def __init__(self, job: ServeJob) -> None:
        """Open both. Raises RecipeError where the model knows the nodes of its own graph only."""
        from tasks.apply.model.files import load_published

        self.job = job
        self.opened = opened = open_model(job, job.graph, lambda: load_published(job.model))
        self.store, self.ids, self.model, self.predictor = opened.store, opened.ids, opened.model, opened.predictor
        self.manifest, self.dataset, self.data_classes = self.store.manifest, opened.dataset, opened.names
        check_facts(self.model, self.manifest)
        self.warnings: list[str] = []
        if isinstance(self.model, Rule):
            if job.what != "predictions" or job.keep is not None:
                raise RecipeError(f"this is {self.model.what}, published in place of a model: it has predictions only")
            self.warnings.append(f"scored by {self.model.what}, which was published in place of a model")
        if not job.own_graph and job.mapped is None:
            refuse_node_embeddings(self.model)
            self.warnings += find_learnt_rows(self.model, job.model, self.dataset)

    def run(self) -> dict[str, Any]:
        """Write what is wanted; returns the files (in the work folder), rows and columns."""
        from tasks.inference.predictor import evaluating

        with evaluating(self.model):
            if self.job.keep is None:
                return self._write()
            from tasks.inference.keeping import keep_outputs

            kept = self.predictor.kept = keep_outputs(self.model, self.opened, self.job.keep, self.job.work)
            return {**self._write(), "kept": kept.told.record()}

    def _write(self) -> dict[str, Any]:
        """Write what is wanted, predictions as Parquet first where CSV is wanted of them."""
        found, ending = self._write_files(), COMPLETION_ENDINGS.get(self.job.format, "")
        if self.job.what == "predictions" and FILE_NAME in found["files"] and ending.startswith(".csv"):
            as_csv(self.job.work / FILE_NAME, self.job.work / file_name(f"predictions{ending}"))
            found["files"] = [f"predictions{ending}"]
        return found

    def _write_files(self) -> dict[str, Any]:
        if self.job.what == "layout":
            return self._lay_out()
        task, embeddings = self.manifest.task, self.job.what == "embeddings"
        if task == "link" and not embeddings:
            return self._write_pairs()
        if task == "triple" and not embeddings:
            return self._write_relations() if self.job.what == "relations" else self._complete()
        items = self._graphs() if task == "graph" else self._wanted_nodes()
        if not len(items):
            raise DataError(f"{self.manifest.dataset} has none of them: there is nothing to write")
        if self.manifest.ranking is not None and not embeddings:
            return {"rows": len(items), "warnings": self.warnings, **self._write_lists(items)}
        outputs = self._graph_outputs(items) if task == "graph" else self._node_outputs(items)
        write = self._write_embeddings if embeddings else self._write_predictions
        return {"rows": len(items), "warnings": self.warnings, **write(items, outputs)}

    def _lay_out(self) -> dict[str, Any]:
        from models.layout.base import LayoutModel
        from tasks.apply.placing import write_placed
        from tasks.evaluate.layouts.of_model import layout_of_model

        def say(done: int, total: int) -> None:
            report_progress(done, total, "steps", "layout")

        job = self.job
        if job.mapped is not None:
            assert isinstance(self.model, LayoutModel)
            file, rows = write_placed(self.opened, self.model, job.mapped, job.work, job.seed)
            return {"rows": rows, "warnings": self.warnings, "files": [file]}
        file, rows, measured = layout_of_model(self.opened, job.layout, job.work, job.seed, say)
        return {"rows": rows, "warnings": self.warnings, "files": [file], "measured": measured}

    # ---- which nodes and graphs

    @property
    def _mixes_types(self) -> bool:
        """Whether entities of all types are wanted, which are called `TYPE:ID`."""
        manifest = self.manifest
        return manifest.task == "triple" and self.job.node_type is None and len(manifest.node_types) > 1

    def _wanted_nodes(self) -> Array:
        if not self._mixes_types:
            return self._nodes(self._node_type())
        path, types = self.job.given.get("nodes"), self.manifest.node_types
        if path is None:
            return np.concatenate([self.ids.nodes_of_type(kind) for kind in types])
        [texts] = read_ids(path, {"id": True})
        names = EntityNames(self.ids, self.dataset, types)
        return names.find(
            texts, lambda row, message: DataError(f"{texts[row].as_py()!r} {message}", path=path, row=row)
        )

    def _node_type(self) -> str:
        wanted, known = self.job.node_type or self.manifest.target_type, self.manifest.node_types
        if wanted not in known:
            raise RecipeError(f"no node type {wanted!r}{did_you_mean(wanted, known)}; there are {', '.join(known)}")
        if self._samples and wanted != self.manifest.target_type:
            raise RecipeError(
                f"{self.model.config.name} has vectors of what it predicts, which are {self.manifest.target_type}, and "
                f"not of {wanted}: leave --node-type out"
            )
        return wanted

    @property
    def _samples(self) -> bool:
        """Whether the model samples around each row, as of its moment; then no other rows have vectors."""
        return bool(self.model.facts.fanouts)

    def _nodes(self, kind: str) -> Array:
        """Return the nodes wanted, int64 (n,): those given, in their order, else all of a type."""
        path = self.job.given.get("nodes")
        if path is None:
            return self.ids.nodes_of_type(kind)
        ids = self._read_nodes(path, f"ids/{kind}")
        with naming(path, "id"):
            found = self.ids.find(ids, kind, read_rows(path))
        check_known(path, "id", ids, found)
        return found

    def _read_nodes(self, path: Path, table: str) -> pa.Array:
        """Return the ids of a file; entities at moments may stand there as two columns, as predictions have them."""
        if (
            at_moments(self.dataset, table)
            and "id" not in (names := file_columns(path))
            and set(AT_MOMENTS) <= set(names)
        ):
            entity, moment = read_ids(path, dict.fromkeys(AT_MOMENTS, True))
            return pc.binary_join_element_wise(entity, moment, "@")
        return self._read_id_file(path, id=table)[0]

    def _graphs(self) -> Array:
        path = self.job.given.get("graphs")
        if path is None:
            return np.arange(self.manifest.num_graphs)
        [ids] = self._read_id_file(path, graph_id="ids/graphs")
        with naming(path, "graph_id"):
            found = find_rows(self.dataset, "ids/graphs", self.manifest.num_graphs, ids, read_rows(path))
        check_known(path, "graph_id", ids, found)
        return found

    def _read_id_file(self, path: Path, **columns: str) -> list[pa.Array]:
        """Return the columns of a file of ids; `columns` names them, and the id table that each one's ids are of."""
        return read_ids(path, {name: ids_are_texts(self.dataset, table) for name, table in columns.items()})

    # ---- scores or vectors

    def _node_outputs(self, nodes: Array) -> Iterator[Output]:
        """Yield the scores or the vectors of nodes, int64 (n,), some at a time."""
        if isinstance(self.model, Rule):
            distinct, rows = np.unique(nodes, return_inverse=True)
            scores = self.predictor.node_scores(self.model, distinct)
            for part in slices(len(nodes), _ROWS):
                yield part, self.ids.columns(nodes[part]), finite(scores[rows[part]])
            return
        keeps = self.job.keep is not None
        if (keeps or 2 * len(nodes) > self.manifest.num_nodes) and not self._samples:
            vectors, rows = self.predictor.node_vectors(self.model), nodes
        else:
            distinct, rows = np.unique(nodes, return_inverse=True)
            vectors = self.predictor.node_vectors(self.model, distinct)
        finish = self.model.finish if self.job.what == "embeddings" else self.model.score
        for part in slices(len(nodes), _ROWS):
            values = self.predictor.by_rows(finish, self.predictor.tensor(vectors[rows[part]]))
            mixed = self._mixes_types
            ids = {"id": self.ids.lookup(nodes[part], typed=True)} if mixed else self.ids.columns(nodes[part])
            yield part, ids, finite(values.cpu().numpy())
            report_progress(part.stop, len(nodes), "nodes", self.job.what)

    def _graph_outputs(self, graphs: Array) -> Iterator[Output]:
        """Yield the scores or the vectors of graphs, int64 (n,), some at a time."""
        if isinstance(self.model, Rule):
            scores = self.predictor.graph_scores(self.model, graphs)
            for part in slices(len(graphs), _ROWS):
                yield part, self.ids.graph_columns(graphs[part]), finite(scores[part])
            return
        pooled = self.job.what == "embeddings"
        for part, batch in self.predictor.graph_batches(self.model, graphs):
            values = self.predictor.pooled(self.model, batch) if pooled else self.model(batch)
            yield part, self.ids.graph_columns(graphs[part]), finite(values.cpu().numpy())
            report_progress(part.stop, len(graphs), "graphs", self.job.what)

    # ---- files

    def _write_embeddings(self, items: Array, outputs: Iterator[Output]) -> dict[str, Any]:
        path = self.job.work / file_name(f"embeddings{ENDINGS[self.job.format]}")
        dim = int(self.model.head_dim)
        with open_vectors(path, self.job.format, len(items), dim) as writer:
            for _, ids, vectors in outputs:
                writer.add(ids, vectors)
        return {"files": [file.name for file in writer.files], "dim": dim}

    def _write_predictions(self, items: Array, outputs: Iterator[Output]) -> dict[str, Any]:
        task_type, work, order = self.manifest.task_type, self.job.work, self.job.label_order
        heads = head_views(self.manifest)
        if order is not None:
            outputs = ((part, ids, scores[:, order]) for part, ids, scores in outputs)
        if self.job.format == "npy":
            with MatrixVectors(work / "predictions.npy", len(items), self.model.facts.out_dim) as matrix:
                for _, ids, scores in outputs:
                    matrix.add(ids, as_probabilities(scores, task_type, heads))
            return {"files": [path.name for path in matrix.files], "classes": self.job.classes}
        splits, labels = self._splits(), self.store["graph_label" if self.manifest.task == "graph" else "label"]
        with PredictionWriter(work, task_type, self.job.classes, self.data_classes, heads) as writer:
            writer.threshold = self.job.threshold
            for part, ids, scores in outputs:
                split = _SPLIT_NAMES.take(pa.array(splits[items[part]]))
                writer.items(ids, split, np.asarray(labels[items[part]]), scores)
        return {"files": [writer.path.name], "classes": self.job.classes}

    def _write_lists(self, tasks: Array) -> dict[str, Any]:
        """Write what is recommended to tasks, a row for each place of their lists."""
        if self.job.format == "npy":
            raise RecipeError("recommendations are lists: write Parquet or CSV (--output FILE.parquet)")
        splits, k = self._splits(), list_length(self.manifest.metric)
        with PredictionWriter(self.job.work, self.manifest.task_type) as writer:
            for part in slices(len(tasks), _ROWS):
                _, lists = self.predictor.ranked(self.model, tasks[part], k)
                split = _SPLIT_NAMES.take(pa.array(splits[tasks[part]]))
                writer.lists(self.ids.columns(tasks[part]), split, self.ids, lists)
                report_progress(part.stop, len(tasks), "rows", "recommendations")
        return {"files": [writer.path.name]}

    def _splits(self) -> Array:
        """Return the split of each node or graph: int8, its place in `_SPLIT_NAMES`."""
        count = self.manifest.num_nodes if self.manifest.task == "node" else self.manifest.num_graphs
        codes = np.full(count, len(SPLITS), np.int8)
        for code, split in enumerate(SPLITS if self.job.names_splits else ()):
            index = self.store.get(f"{split}_idx")
            if index is not None:
                codes[index] = code
        return codes

    def _write_pairs(self) -> dict[str, Any]:
        if self.job.format == "npy":
            raise RecipeError("pairs have a score each: write Parquet or CSV (--output FILE.parquet)")
        source_type, target_type = self._end_types()
        path = self.job.given["pairs"]
        sources, targets = self._read_id_file(path, source=f"ids/{source_type}", target=f"ids/{target_type}")
        ends = []
        for column, ids, kind in (("source", sources, source_type), ("target", targets, target_type)):
            row_column = f"{column}_row"  # as `IdMap.columns` calls it
            rows = read_rows(path, row_column)
            with naming(path, column):
                ends.append(self.ids.find(ids, kind, rows, row_column))
            check_known(path, column, ids, ends[-1])
        pairs = np.stack(ends, 1)
        vectors: Any = None
        if isinstance(self.model, Rule):
            place = pairs
        elif self.job.keep is not None:
            vectors, place = self.predictor.node_vectors(self.model), pairs
        else:
            distinct, place = np.unique(pairs, return_inverse=True)
            vectors, place = self.predictor.node_vectors(self.model, distinct), place.reshape(pairs.shape)
        with PredictionWriter(self.job.work, self.manifest.task_type) as writer:
            for part in slices(len(pairs), _ROWS):
                named = self.ids.columns(pairs[part, 0], "source") | self.ids.columns(pairs[part, 1], "target")
                if isinstance(self.model, Rule):
                    writer.pairs(named, finite(self.model.pair_scores(pairs[part])))
                elif self.model.scores_relations:
                    self._write_by_relation(writer, named, vectors, place[part])
                else:
                    writer.pairs(named, finite(self.predictor.pair_scores(self.model, vectors, place[part])))
                report_progress(part.stop, len(pairs), "pairs", "predictions")
        return {"files": [writer.path.name], "rows": len(pairs)}

    def _write_by_relation(self, writer: Any, named: dict[str, pa.Array], vectors: Any, pairs: Array) -> None:
        """Write pairs once for each relation that links are predicted in."""
        for number, name in enumerate(relations_of(self.manifest)):
            relation = np.full(len(pairs), number, np.int64)
            scores = finite(self.predictor.pair_scores(self.model, vectors, pairs, relation))
            writer.pairs({**named, "relation": pa.repeat(name, len(pairs))}, scores)

    def _complete(self) -> dict[str, Any]:
        from tasks.apply.completion.worker import Completion

        completion = Completion(self.opened, self.job.asked, self.job.given.get("queries"))
        if self.job.is_shown:
            return completion.rows()
        return completion.write(self.job.work / file_name(f"predictions{COMPLETION_ENDINGS[self.job.format]}"))

    def _write_relations(self) -> dict[str, Any]:
        """Write the rows of relations under their names; one that has a row for its way back has that as NAME^-1."""
        from models.knowledge.base import KnowledgeModel

        assert isinstance(self.model, KnowledgeModel)
        names, table = relation_names(self.dataset), self.model.relations
        if len(table) > len(names):
            back = pc.binary_join_element_wise(names, pa.scalar("^-1"), "")
            names = pa.concat_arrays([names, back])
        path = self.job.work / file_name(f"relations{ENDINGS[self.job.format]}")
        with open_vectors(path, self.job.format, len(names), table.shape[1]) as writer:
            for part in slices(len(names), _ROWS):
                writer.add({"id": names[part]}, finite(table[part].numpy()))
        return {"files": [file.name for file in writer.files], "rows": len(names), "dim": table.shape[1]}

    def _end_types(self) -> tuple[str, str]:
        types = self.dataset.manifest.edge_types
        if len(self.manifest.node_types) == 1:
            return self.manifest.node_types[0], self.manifest.node_types[0]
        return types[0].source, types[0].target  # preprocess refuses held-out edges of several relations


def finite(values: Array) -> Array:
    """Return what a model computed. Raises StageError where some of it are no numbers."""
    if not np.isfinite(values).all():
        raise StageError(
            "the model computes values that are no numbers (nan or infinite): its weights are damaged, or features are "
            "too large for float32; train anew with preprocess.transforms: [standardize], or use another version"
        )
    return values


_SPLIT_NAMES = pa.array([*SPLITS, None], pa.string())


def main(job_path: Path) -> int:
    """Score."""
    return finish_job(job_path, ServeJob, lambda job: Serving(job).run())
