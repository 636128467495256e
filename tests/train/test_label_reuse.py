"""A model that reads labels is never asked about one that it reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from configs.errors import RecipeError
from configs.registry import MODELS
from models.block import Batch
from tasks.inference.predictor import Predictor
from tasks.sampling.rows.features import FeatureSource
from tasks.stage import Parent, run_stage
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.manifests import PartitionManifest
from tasks.train.loaders.base import Loader
from tasks.train.stage import STAGE
from tests.loaders import make_loader
from tests.support import as_partition, node_graph
from tests.train.in_process import make_job, train_here
from tests.train.test_training import partition, recipe, records


def opened(folder: Path) -> GraphStore:
    parent = as_partition(node_graph(folder))
    assert isinstance(parent.manifest, PartitionManifest)
    parts = {"part_offsets": (0, 100, 200, 300), "num_parts": 3}
    return GraphStore(parent.folder, parent.manifest.model_copy(update=parts))


def first_batch(loader: Loader) -> Batch:
    if loader.num_batches is not None:
        return loader.epoch_batch(0, 0, 7)
    return loader.batch(np.arange(loader.num_seeds if loader.whole_split else 20), 7)


@pytest.mark.parametrize("name", ["neighbor", "full", "cluster", "random_partition"])
def test_asked_nodes_hide_their_labels_and_others_of_the_training_split_show_theirs(tmp_path: Path, name: str) -> None:
    store = opened(tmp_path)
    options = {"random_partition": {"num_clusters": 3}}.get(name, {})
    model = MODELS.create(
        MODELS.config({"name": "graphsage", "num_layers": 2, "label_reuse": True}), graph_facts(store.manifest)
    )
    batch = first_batch(make_loader(name, store, FeatureSource.of(store, model), model, **options))

    label, nodes = batch.inputs.label, batch.inputs.node_ids.numpy()
    assert label is not None
    asked = np.arange(batch.num_seeds) if batch.rows is None else batch.rows.numpy()
    assert len(asked)
    assert (label.numpy()[asked] == -1).all()
    assert (batch.target.numpy() == store["label"][nodes[asked]]).all()
    known = np.flatnonzero(label.numpy() >= 0)
    assert len(known), "nothing is reused"
    assert (label.numpy()[known] == store["label"][nodes[known]]).all()
    assert np.isin(nodes[known], store["train_idx"]).all(), "a label of another split is read"


def test_inference_reads_all_training_labels_and_no_others(tmp_path: Path) -> None:
    store = opened(tmp_path)
    config = MODELS.config({"name": "graphsage", "num_layers": 2, "label_reuse": True, "hidden_dim": 8})
    torch.manual_seed(0)
    model = MODELS.create(config, graph_facts(store.manifest))
    source = FeatureSource.of(store, model)
    assert source.label is not None
    assert (np.flatnonzero(source.label >= 0) == np.sort(store["train_idx"])).all()
    nodes = np.asarray(store["valid_idx"], np.int64)
    whole = Predictor(store).node_scores(model, nodes)
    layered = Predictor(store, whole_graph_bytes=0, chunk_edges=50).node_scores(model, nodes)
    np.testing.assert_allclose(whole, layered, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("loader", ["full", "cluster"])
def test_a_model_learns_from_labels(tmp_path: Path, loader: str) -> None:
    parent = as_partition(node_graph(tmp_path / "graph"))
    manifest = parent.manifest.model_copy(update={"part_offsets": (0, 100, 200, 300), "num_parts": 3})
    (parent.folder / "manifest.json").write_text(manifest.model_dump_json())
    options = ("model.label_reuse=true", f"train.loader={loader}", "train.epochs=30")
    job = make_job(recipe("node", *options), Parent(manifest, parent.folder), tmp_path / "work")
    train_here(job)
    lines = records(job.work)
    losses = [line["train/loss"] for line in lines if "train/loss" in line]
    assert losses[-1] < 0.7 * losses[0]


def test_numbers_are_no_labels_to_read(tmp_path: Path, home: Home) -> None:
    parent = partition(tmp_path / "g")
    graph = Parent(parent.manifest.model_copy(update={"task_type": "regression"}), parent.folder)
    with pytest.raises(RecipeError, match=r"model\.label_reuse reads classes, and this is a regression"):
        run_stage(STAGE, recipe("node", "model.label_reuse=true"), {"partition": graph}, home)
