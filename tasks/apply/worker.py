"""What serving's own process runs (started by `tasks.supervise`): scores and vectors of a registered model.

Nodes, pairs and graphs are scored as evaluation scores them: full neighbourhoods, layer by layer where the graph is
large; rows of typed graphs as of their moments, by sampling. What is written is streamed, so that memory does not grow
with it.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from configs.errors import DataError, RecipeError
from configs.matching import did_you_mean
from models.base import GraphModel
from models.relational.base import RelationalModel
from tasks.apply.completion.names import EntityNames
from tasks.apply.given import check_known, edges_of, ids_are_texts, naming, read_ids, read_rows
from tasks.apply.job import ServeJob
from tasks.apply.model.needs import check_facts, refuse_node_embeddings
from tasks.apply.model.row_ids import find_rows as find_learnt_rows
from tasks.apply.vector_files.formats import COMPLETION_ENDINGS, ENDINGS
from tasks.apply.vector_files.writers import MatrixVectors, open_vectors
from tasks.arrays import blocks
from tasks.inference.former_layers import FormerLayers, KeepJob
from tasks.inference.kept_layers import AuditError, KeptLayers
from tasks.inference.kept_rows import KeptRows
from tasks.inference.opened import Opened, open_model
from tasks.inference.predictor import evaluating, no_vectors
from tasks.inference.rule import Rule
from tasks.ingest.tables.files import TableFiles
from tasks.kinds.base import finite
from tasks.kinds.judged import Deciding
from tasks.kinds.of import kind_of
from tasks.storage.file_names import file_name
from tasks.storage.graph_store import Array
from tasks.storage.ids import AT_MOMENTS, at_moments, find_rows, relation_names
from tasks.storage.outputs.tables import CsvOutput, ParquetOutput
from tasks.supervise import finish_job, report_progress

_ROWS = 1 << 16


class Serving:
    """One model on one graph."""

    def __init__(self, job: ServeJob) -> None:
        """Open both. Raises RecipeError where the model knows the nodes of its own graph only."""
        from tasks.apply.model.files import load_published

        self.job = job
        self.opened = opened = open_model(job, job.graph, lambda: load_published(job.model))
        self.store, self.ids, self.model, self.predictor = opened.store, opened.ids, opened.model, opened.predictor
        self.manifest, self.dataset = self.store.manifest, opened.dataset
        self.kind = kind_of(self.manifest)
        check_facts(self.model, self.manifest)
        self.warnings: list[str] = []
        if isinstance(self.model, Rule):
            if job.what != "predictions" or job.keep is not None:
                raise no_vectors(self.model)
            self.warnings.append(f"scored by {self.model.what}, which was published in place of a model")
        if not job.own_graph and job.mapped is None:
            refuse_node_embeddings(self.model)
            self.warnings += find_learnt_rows(self.model, job.model, self.dataset)

    def run(self) -> dict[str, Any]:
        """Write what is wanted; returns the files (in the work folder), rows and columns."""
        with evaluating(self.model):
            if self.job.keep is None:
                return self._write()
            kept = self.predictor.kept = keep_outputs(self.model, self.opened, self.job.keep, self.job.work)
            return {**self._write(), "kept": asdict(kept.told)}

    def _write(self) -> dict[str, Any]:
        what = self.job.what
        if what == "layout":
            return self._lay_out()
        if what == "relations":
            return self._write_relations()
        if what == "explanations":
            return self._explain()
        if what == "predictions" and self.kind.asked_by == "queries":
            from tasks.apply.completion.worker import Completion

            completion = Completion(self.opened, self.job.asked, self.job.given.get("queries"))
            if self.job.is_shown:
                return completion.rows()
            return completion.write(self.job.work / file_name(f"predictions{COMPLETION_ENDINGS[self.job.format]}"))
        lists = self.kind.lists_for_nodes and "nodes" in self.job.given
        asked_by = "nodes" if lists else self.kind.asked_by
        items = self._asked(self.kind.vectors_of if what == "embeddings" else asked_by)
        if not len(items):
            raise DataError(f"{self.manifest.dataset} has none of them: there is nothing to write")
        written = self._write_embeddings(items) if what == "embeddings" else self._write_predictions(items)
        return {"rows": len(items), "warnings": self.warnings, **written}

    def _lay_out(self) -> dict[str, Any]:
        from models.layout.base import LayoutModel
        from tasks.apply.placing import write_placed
        from tasks.evaluate.model_layout import layout_of_model

        job = self.job
        if job.mapped is not None:
            assert isinstance(self.model, LayoutModel)
            file, rows = write_placed(self.opened, self.model, job.mapped, job.work, job.seed)
            return {"rows": rows, "warnings": self.warnings, "files": [file]}
        file, rows, measured = layout_of_model(self.opened, job.layout, job.work, job.seed)
        return {"rows": rows, "warnings": self.warnings, "files": [file], "measured": measured}

    def _explain(self) -> dict[str, Any]:
        from tasks.apply.explanations import asked_items, write_explanations

        what = self.kind.explained_by
        from_file = what in self.job.given and what != "triples"
        items = self._asked(what) if from_file else asked_items(self.opened, self.job, what)
        return {"warnings": self.warnings, **write_explanations(self.opened, self.job, items)}

    # ---- which nodes, graphs or pairs

    def _asked(self, what: str) -> Array:
        """Return what is asked about: nodes, edges or graphs, all where no file says which, or pairs."""
        if what == "graphs":
            return self._graphs()
        if what == "pairs":
            return self._pairs()
        if what == "edges":
            return edges_of(self.opened, self.job.given.get("edges"))
        path, types = self.job.given.get("nodes"), self.manifest.node_types
        if not self._mixes_types:
            return self._nodes(path)
        if path is None:
            return np.concatenate([self.ids.nodes_of_type(kind) for kind in types])
        [texts] = read_ids(path, {"id": True})
        names = EntityNames(self.ids, self.dataset, types)
        return names.find(
            texts, lambda row, message: DataError(f"{texts[row].as_py()!r} {message}", path=path, row=row)
        )

    @property
    def _mixes_types(self) -> bool:
        """Whether entities of all types are wanted, which are called `TYPE:ID`."""
        return self.kind.mixes_types and self.job.node_type is None and len(self.manifest.node_types) > 1

    def _nodes(self, path: Path | None) -> Array:
        """Return the nodes wanted, int64 (n,): those given in a file, in their order, else all of a type."""
        kind, types = self.job.node_type or self.manifest.target_type, self.manifest.node_types
        if kind not in types:
            raise RecipeError(f"no node type {kind!r}{did_you_mean(kind, types)}; there are {', '.join(types)}")
        # A model that samples around each row, as of its moment, has vectors of no other rows.
        if self.model.facts.fanouts and kind != self.manifest.target_type:
            raise RecipeError(
                f"{self.model.config.name} has vectors of what it predicts, which are {self.manifest.target_type}, and "
                f"not of {kind}: leave --node-type out"
            )
        if path is None:
            return self.ids.nodes_of_type(kind)
        columns = TableFiles((str(path),)).column_names()
        # Entities at moments may stand there as two columns, as predictions have them.
        if at_moments(self.dataset, f"ids/{kind}") and "id" not in columns and set(AT_MOMENTS) <= set(columns):
            entity, moment = read_ids(path, dict.fromkeys(AT_MOMENTS, True))
            ids = pc.binary_join_element_wise(entity, moment, "@")
        else:
            [ids] = self._read_id_file(path, id=f"ids/{kind}")
        with naming(path, "id"):
            nodes = self.ids.find(ids, kind, read_rows(path))
        check_known(path, "id", ids, nodes, self.dataset, f"ids/{kind}")
        return nodes

    def _graphs(self) -> Array:
        path = self.job.given.get("graphs")
        if path is None:
            return np.arange(self.manifest.num_graphs)
        [ids] = self._read_id_file(path, graph_id="ids/graphs")
        with naming(path, "graph_id"):
            graphs = find_rows(self.dataset, "ids/graphs", self.manifest.num_graphs, ids, read_rows(path))
        check_known(path, "graph_id", ids, graphs, self.dataset, "ids/graphs")
        return graphs

    def _pairs(self) -> Array:
        """Return the pairs of nodes of a file, int64 (n, 2)."""
        path, types = self.job.given["pairs"], self.manifest.node_types
        if len(types) == 1:
            ends = {"source": types[0], "target": types[0]}
        else:  # preprocess refuses held-out edges of several relations
            edges = self.dataset.manifest.edge_types[0]
            ends = {"source": edges.source, "target": edges.target}
        columns = self._read_id_file(path, **{name: f"ids/{kind}" for name, kind in ends.items()})
        nodes = []
        for (name, kind), ids in zip(ends.items(), columns, strict=True):
            row_column = f"{name}_row"  # as `IdMap.columns` calls it
            rows = read_rows(path, row_column)
            with naming(path, name):
                nodes.append(self.ids.find(ids, kind, rows, row_column))
            check_known(path, name, ids, nodes[-1], self.dataset, f"ids/{kind}")
        return np.stack(nodes, 1)

    def _read_id_file(self, path: Path, **columns: str) -> list[pa.Array]:
        """Return the columns of a file of ids; `columns` names them, and the id table that each one's ids are of."""
        return read_ids(path, {name: ids_are_texts(self.dataset, table) for name, table in columns.items()})

    # ---- files

    def _write_embeddings(self, items: Array) -> dict[str, Any]:
        path = self.job.work / file_name(f"embeddings{ENDINGS[self.job.format]}")
        dim = int(self.model.head_dim)
        with open_vectors(path, self.job.format, len(items), dim) as writer:
            done = 0
            for ids, vectors in self.kind.vectors(self.opened, items, typed=self._mixes_types):
                writer.add(ids, vectors)
                done += len(vectors)
                report_progress(done, len(items), self.kind.vectors_of, self.job.what)
        return {"files": [file.name for file in writer.files], "dim": dim}

    def _write_predictions(self, items: Array) -> dict[str, Any]:
        work, job = self.job.work, self.job
        deciding = Deciding(job.classes, self.opened.names, job.threshold, job.label_order)
        rows = self.kind.asked_rows(self.opened, items, names_splits=job.names_splits)
        rows = replace(rows, most=job.asked.most) if self.kind.lists_for_nodes else rows
        if job.format == "npy":
            outputs = self.kind.probabilities(self.opened, rows, deciding)
            with MatrixVectors(work / "predictions.npy", len(items), self.model.facts.out_dim) as matrix:
                for ids, values in outputs:
                    matrix.add(ids, values)
            return {"files": [path.name for path in matrix.files], "classes": job.classes}
        done, path = 0, work / file_name(f"predictions{COMPLETION_ENDINGS[job.format]}")
        with ParquetOutput(path) if path.suffix == ".parquet" else CsvOutput(path) as writer:
            for columns in self.kind.answers(self.opened, rows, deciding):
                writer.write(pa.table(columns))
                done = min(len(items), done + _ROWS)
                report_progress(done, len(items), self.kind.asked_by, job.what)
        return {"files": [path.name], "classes": job.classes}

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
            for part in blocks(len(names), _ROWS):
                writer.add({"id": names[part]}, finite(table[part].numpy()))
        return {"files": [file.name for file in writer.files], "rows": len(names), "dim": table.shape[1]}


Kept = KeptLayers | KeptRows


def keep_outputs(model: GraphModel, opened: Opened, job: KeepJob, scratch: Path) -> Kept:
    """Compute all outputs into the job's folder. Inside of `evaluating`.

    Raises RecipeError: the model's vectors are not those of layers, one after the other.
    """
    has_layers = model.table is None and model.is_layered and len(model.layers)
    if not isinstance(model, RelationalModel) and not has_layers:
        raise RecipeError(
            f"--keep-layers: {model.config.name} has no layers that are computed for all nodes, one after the other"
        )
    if opened.store.manifest.ranking:
        raise RecipeError(
            "--keep-layers: a model that ranks rows has none of its own for what it predicts; leave it out"
        )
    try:
        return _keep(model, opened, job, job.former, scratch)
    except AuditError as error:
        kept = _keep(model, opened, job, None, scratch)
        kept.told.warning = (
            f"{error}: this model's rows follow from others computed beside them, so nothing was taken over, and "
            "--keep-layers brings it nothing"
        )
        return kept


def _keep(model: GraphModel, opened: Opened, job: KeepJob, former: FormerLayers | None, scratch: Path) -> Kept:
    store = opened.store
    if isinstance(model, RelationalModel):
        rows = opened.ids.nodes_of_type(store.manifest.target_type)
        place = None if former is None else former.layers
        kept_rows = KeptRows(store, rows, job.folder, place, is_complete=job.is_complete)
        kept_rows.vectors(model, rows[:0])
        return kept_rows
    kept = KeptLayers(store, job.folder, scratch, is_complete=job.is_complete)
    if former is not None and not job.is_complete:
        kept.compare(model, opened.dataset, former)
    kept.vectors(model)
    return kept


def main(job_path: Path) -> int:
    """Score."""
    return finish_job(job_path, ServeJob, lambda job: Serving(job).run())
