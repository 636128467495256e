"""The vectors of a registered model's nodes as an artifact, for recipes that take them as features.

They are what `graphmill export embeddings` writes of the training's own graph. Beside them lies what the training saw,
by the same rows, so that a recipe that holds some of it out can notice.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import RecipeError
from configs.schema import Recipe
from tasks.apply.model.needs import check_facts
from tasks.apply.model.published import Published
from tasks.apply.vector_files.writers import ParquetVectors
from tasks.arrays import Array, blocks, row_blocks
from tasks.inference.opened import Opened, ScoringJob, open_model
from tasks.kinds.base import finite
from tasks.kinds.of import kind_named
from tasks.preprocess.transforms.configs import from_models
from tasks.stage import Parent, Stage, StageContext
from tasks.storage.artifacts import artifact_key
from tasks.storage.file_names import file_name
from tasks.storage.graph_store import create_array, id_dtype
from tasks.storage.ids import has_own_ids, structure_digest
from tasks.storage.outcomes import VECTORS, VectorsManifest, VectorTable
from tasks.supervise import finish_job, report_progress, run_job

_VERSION = 1
_PARENTS = ("ingest", "partition")
_EDGES, _TRAINED, _CHOSEN = "edges.npy", "trained.npy", "chosen.npy"
_ROWS, _CHUNK_EDGES = 1 << 16, 1 << 20


def vectors_key(published: Published) -> str:
    """Return the key that a model's vectors have in any home: what the model was trained from, and its weights.

    Raises RecipeError: it is a model of whole graphs.
    """
    if kind_named(published.task).vectors_of != "nodes":
        raise RecipeError(
            f"{published.name} predicts graphs: it has no vectors of nodes; name a model of nodes or links"
        )
    digests = {name: str(published.lineage[name]["digest"]) for name in _PARENTS}
    return artifact_key(VECTORS, _VERSION, vectors_stage(published).config(published.recipe), digests)


def vectors_stage(published: Published) -> Stage[VectorsManifest]:
    """Return the stage that makes a model's vectors; its parents are those of the training."""
    config = {"train": str(published.lineage["train"]["digest"])}
    return Stage(VECTORS, _VERSION, VectorsManifest, _PARENTS, lambda _: config, partial(_build, published))


def _build(published: Published, context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> dict[str, Any]:
    ingest, graph = parents["ingest"], parents["partition"]
    job = VectorsJob(
        model=published.folder,
        graph=graph.folder,
        dataset=ingest.folder,
        work=context.work,
        batch_size=recipe.evaluate.batch_size,
        device=recipe.train.device,
        threads=recipe.train.threads,
    )
    fields = run_job("tasks.apply.vectors", job, context)
    return {
        **fields,
        "recipe": recipe.name,
        "structure": structure_digest(ingest.manifest),
        "as_of": recipe.snapshot.as_of,
        "directed": ingest.manifest.directed and not graph.manifest.symmetric,
        "sources": {str(one.model): str(one.vectors) for one in from_models(recipe.preprocess.transforms)},
        "rows": graph.manifest.num_nodes,
    }


@dataclass(frozen=True, kw_only=True)
class VectorsJob(ScoringJob):
    """Whose vectors are made."""

    model: Path
    """Folder of the model's files."""
    graph: Path
    """Folder of the partition's artifact that it was trained on."""


def write_vectors(job: VectorsJob) -> dict[str, Any]:
    """Write the vectors of all nodes and what the training saw; returns fields of VectorsManifest."""
    from models.vectors.base import VectorModel
    from tasks.apply.model.files import load_published

    opened = open_model(job, job.graph, lambda: load_published(job.model))
    check_facts(opened.model, opened.store.manifest)
    tables, row, squares = _write_tables(opened, job.work)
    dim = int(opened.model.head_dim)
    labels = opened.store.manifest.split_rows.are_nodes and not isinstance(opened.model, VectorModel)
    for path, split in ((job.work / _TRAINED, "train_idx"), (job.work / _CHOSEN, "valid_idx")):
        nodes = opened.store.get(split) if labels else None
        np.save(path, row[:0] if nodes is None else row[np.asarray(nodes)])
    _write_edges(opened, job.work / _EDGES, row)
    return {
        "node_tables": [one.model_dump() for one in tables],
        "dim": dim,
        "mean_square": squares / max(1, len(row) * dim),
        "edges": _EDGES,
        "trained": _TRAINED,
        "chosen": _CHOSEN,
    }


def _write_tables(opened: Opened, work: Path) -> tuple[list[VectorTable], Array, float]:
    """Write a file for each node type; returns them, the row of each node, id (N,), and the sum of all squares."""
    from tasks.inference.predictor import evaluating

    manifest, ids, predictor = opened.store.manifest, opened.ids, opened.predictor
    row = np.zeros(manifest.num_nodes, id_dtype(manifest.num_nodes))
    tables, first, squares = [], 0, 0.0
    with evaluating(opened.model):
        vectors = predictor.node_vectors(opened.model)
        for kind in manifest.node_types:
            nodes = ids.nodes_of_type(kind)
            row[nodes] = np.arange(first, first + len(nodes))
            path = work / f"{file_name(kind)}.parquet"
            with ParquetVectors(path) as writer:
                for part in blocks(len(nodes), _ROWS):
                    values = finite(opened.model.finish(predictor.tensor(vectors[nodes[part]])).cpu().numpy())
                    squares += float(np.square(values, dtype=np.float64).sum())
                    writer.add(ids.columns(nodes[part]), values)
                    report_progress(first + part.stop, manifest.num_nodes, "nodes", VECTORS)
            if len(nodes):
                own = has_own_ids(opened.dataset.manifest, kind)
                tables.append(VectorTable(kind=kind, file=path.name, num_rows=len(nodes), own_ids=own))
            first += len(nodes)
    return tables, row, squares


def _write_edges(opened: Opened, path: Path, row: Array) -> None:
    """Write the edges that carried messages or trained; of a symmetric graph one direction."""
    store = opened.store
    indptr, indices = store["csc_indptr"], store["csc_indices"]
    train = store.get("train_edges")
    train = np.empty((0, 2), row.dtype) if train is None else train

    def messages() -> Any:
        for first, end in row_blocks(indptr, _CHUNK_EDGES):
            src = np.asarray(indices[indptr[first] : indptr[end]])
            dst = np.repeat(np.arange(first, end), np.diff(indptr[first : end + 1]))
            there = src <= dst if store.manifest.symmetric else slice(None)
            yield src[there], dst[there]

    count = sum(len(src) for src, _ in messages())
    out, place = create_array(path, (count + len(train), 2), row.dtype), 0
    for src, dst in messages():
        out[place : place + len(src), 0], out[place : place + len(src), 1] = row[src], row[dst]
        place += len(src)
    for part in blocks(len(train), _CHUNK_EDGES):
        out[place : place + part.stop - part.start] = row[np.asarray(train[part])]
        place += part.stop - part.start


def main(job_path: Path) -> int:
    """Write them."""
    return finish_job(job_path, VectorsJob, write_vectors)
