"""Of a newer graph only what changed is computed, and the outputs are those of a full pass to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.registry import MODELS
from models.base import GraphModel
from models.dgl.convolutions import CONVOLUTIONS
from models.gnn.graphsage import SageConv
from tasks.inference.former_layers import FormerLayers
from tasks.inference.kept_layers import AuditError, KeptLayers
from tasks.inference.layerwise import Layerwise
from tasks.inference.predictor import evaluating
from tasks.inference.row_stable import RowStable, by_rows
from tasks.sampling.rows.features import FeatureSource
from tasks.stage import Parent
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tests.inference.two_nights import World, first_night, second_night, write
from tests.registered import models_of
from tests.support import WITHOUT_DGL

OPTIONS: dict[str, dict[str, Any]] = {
    "graphsage": {"aggregator": "max", "edge_weights": False},
    "gcn": {"edge_weights": True, "norm": "batch"},
    "gat": {"residual": True, "activation": "gelu", "norm": "layer"},
    "gatv2": {},
}


def nights(
    folder: Path, *, typed: bool, seed: int = 0, count: int = 700, dim: int = 7
) -> tuple[tuple[Parent, Parent], ...]:
    former = first_night(count, seed, dim)
    newer = second_night(former, seed + 1)
    return (
        write(folder / "former", former, seed=seed + 2, typed=typed),
        write(folder / "newer", newer, seed=seed + 3, typed=typed),
    )


def make_model(graph: Parent, name: str, **options: Any) -> GraphModel:
    torch.manual_seed(0)
    config = MODELS.config({"name": name, "hidden_dim": 24, "num_layers": 3, **options})
    model: GraphModel = MODELS.create(config, graph_facts(graph.manifest))
    for place, value in model.named_buffers():  # running statistics that are not those of a start
        if "running" in place:
            value.uniform_(0.5, 1.5) if place.endswith("var") else value.normal_(0, 0.1)
    return model


def run(
    folder: Path, model: GraphModel, night: tuple[Parent, Parent], former: FormerLayers | None, chunk: int
) -> KeptLayers:
    folder.mkdir()
    graph, data = night
    kept = KeptLayers(GraphStore(graph.folder, graph.manifest), folder, None, chunk)
    with evaluating(model):
        if former is not None:
            kept.compare(model, DatasetStore(data.folder, data.manifest), former)
        kept.result = np.array(kept.vectors(model))  # type: ignore[attr-defined]
    return kept


def layered() -> list[str]:
    return [name for name in models_of("gnn") if not (WITHOUT_DGL and name == "dgl")]


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("name", layered())
def test_what_changed_alone_is_computed_and_equal_to_the_bit(tmp_path: Path, name: str, typed: bool) -> None:
    former, newer = nights(tmp_path, typed=typed)
    if name == "rgcn" and not typed:
        pytest.skip("R-GCN is for graphs of several relations")
    model = make_model(former[0], name, **OPTIONS.get(name, {}))
    if not model.is_layered or not len(model.layers):
        pytest.skip("no layers one after the other")
    before = run(tmp_path / "kept", model, former, None, 1 << 20)
    full = run(tmp_path / "full", model, newer, None, 700)  # other chunks: the bits must not follow from them
    place = FormerLayers(tmp_path / "kept", former[0].folder, former[1].folder)
    delta = run(tmp_path / "delta", model, newer, place, 1 << 20)
    assert before.told.computed == [700] * 3
    assert 0 < min(delta.told.computed) <= max(delta.told.computed) < 600
    assert delta.told.audited > 0
    assert np.array_equal(delta.result, full.result)  # type: ignore[attr-defined]
    for file in sorted((tmp_path / "full").iterdir()):
        assert np.array_equal(np.load(file), np.load(tmp_path / "delta" / file.name)), file.name
    store = GraphStore(newer[0].folder, newer[0].manifest)
    plain = Layerwise(store, torch.device("cpu"))
    with evaluating(model):
        reference = plain.vectors(model, FeatureSource.of(store, model), None)
    np.testing.assert_allclose(delta.result, reference, rtol=2e-4, atol=2e-5)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["graphsage", "gcn", "gat", "gin", "rgcn"])
@pytest.mark.parametrize(("dim", "hidden"), [(150, 24), (33, 136)])
def test_the_bits_of_a_row_do_not_follow_from_its_chunk(tmp_path: Path, name: str, dim: int, hidden: int) -> None:
    world = first_night(900, 3, dim)
    graph, _ = write(tmp_path, world, seed=1, typed=True)
    model = make_model(graph, name, hidden_dim=hidden)
    store = GraphStore(graph.folder, graph.manifest)
    rows, features = RowStable(store), FeatureSource.of(store, model)
    nodes, rng = np.arange(900), np.random.default_rng(0)
    with evaluating(model):
        encoded = rows.encoded_rows(model, features, nodes)
        all_rows = rows.layer_rows(model.layers[0], features, encoded, nodes)
        scores = by_rows(model.score, torch.from_numpy(all_rows)).numpy()
        for count in (1, 2, 3, 37, 64, 65, 500):
            some = rng.permutation(900)[:count]
            assert np.array_equal(rows.encoded_rows(model, features, some), encoded[some])
            found = rows.layer_rows(model.layers[0], features, encoded, some)
            assert np.array_equal(found, all_rows[some])
            assert np.array_equal(by_rows(model.score, torch.from_numpy(found)).numpy(), scores[some])


@pytest.mark.skipif(WITHOUT_DGL, reason="DGL has no wheel for this Python")
@pytest.mark.parametrize("conv", [name for name in CONVOLUTIONS if name not in ("TWIRLSConv", "APPNPConv")])
def test_rows_of_dgl_convolutions_follow_from_no_other_row(tmp_path: Path, conv: str) -> None:
    graph, _ = write(tmp_path, first_night(300, 3, 33), seed=1, typed=True)
    options = {"conv": conv, "num_layers": 1, **({"options": {"norm": "right"}} if conv == "GraphConv" else {})}
    model = make_model(graph, "dgl", **options)
    if not model.is_layered:
        return
    assert model.table is None
    rows, features = RowStable(store := GraphStore(graph.folder, graph.manifest)), FeatureSource.of(store, model)
    nodes, rng = np.arange(300), np.random.default_rng(0)
    with evaluating(model):
        encoded = store["feat"] if model.encoder.is_plain else rows.encoded_rows(model, features, nodes)
        all_rows = rows.layer_rows(model.layers[0], features, encoded, nodes)
        for count in (1, 2, 7, 65):
            some = rng.permutation(300)[:count]
            found = rows.layer_rows(model.layers[0], features, encoded, some)
            assert np.array_equal(found, all_rows[some])


def test_rows_that_are_not_what_would_be_computed_are_noticed(tmp_path: Path) -> None:
    former, newer = nights(tmp_path, typed=False)
    model = make_model(former[0], "graphsage")
    run(tmp_path / "kept", model, former, None, 1 << 20)
    kept = np.load(tmp_path / "kept" / "layer1.npy", mmap_mode="r+")
    kept += np.float32(1e-6)
    kept.flush()
    place = FormerLayers(tmp_path / "kept", former[0].folder, former[1].folder)
    with pytest.raises(AuditError, match="differ"):
        run(tmp_path / "delta", model, newer, place, 1 << 20)


@pytest.mark.parametrize("hidden", [16, 136])
def test_wide_features_are_taken_over(tmp_path: Path, hidden: int) -> None:
    """Sums over 500 columns: libraries cut them into parts, or not, by the number of rows."""
    former, newer = nights(tmp_path, typed=False, dim=500)
    model = make_model(former[0], "gcn", hidden_dim=hidden)
    run(tmp_path / "kept", model, former, None, 1 << 20)
    full = run(tmp_path / "full", model, newer, None, 1 << 20)
    place = FormerLayers(tmp_path / "kept", former[0].folder, former[1].folder)
    delta = run(tmp_path / "delta", model, newer, place, 1 << 20)
    assert full.told.warning is None
    assert max(delta.told.computed) < 700
    for file in sorted((tmp_path / "full").iterdir()):
        assert np.array_equal(np.load(file), np.load(tmp_path / "delta" / file.name)), file.name


@pytest.mark.parametrize("limit", [200, 300, 700])
@pytest.mark.parametrize("of", ["num_dst", "num_src"])
def test_rows_that_go_by_how_many_there_are_are_noticed(
    tmp_path: Path, limit: int, of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a full pass, whose chunk is larger than the limit, and by a pass that takes over what was kept."""
    former, newer = nights(tmp_path, typed=False)
    model = make_model(former[0], "graphsage")
    place = FormerLayers(tmp_path / "kept", former[0].folder, former[1].folder)
    run(tmp_path / "stable", model, former, None, 1 << 20)
    forward = SageConv.forward

    def by_count(self: SageConv, block: Any, x: torch.Tensor) -> torch.Tensor:
        return forward(self, block, x) * (1 + 1e-6 * (getattr(block, of) > limit))

    monkeypatch.setattr(SageConv, "forward", by_count)
    warning = run(tmp_path / "kept", model, former, None, 1 << 20).told.warning
    assert warning is not None
    assert "another chunk too differ: this model's rows follow from others" in warning
    with pytest.raises(AuditError, match="differ"):
        run(tmp_path / "delta", model, newer, place, 1 << 20)
    other = FormerLayers(tmp_path / "stable", former[0].folder, former[1].folder)
    with pytest.raises(AuditError, match="differ"):  # as after a change that nothing else tells of
        run(tmp_path / "after", model, newer, other, 1 << 20)


def test_the_last_chunk_of_a_full_pass_is_tried(tmp_path: Path) -> None:
    """One row of it is not what is computed, and whoever draws some of all rows may miss it."""
    graph = write(tmp_path / "graph", first_night(700, 0), seed=None, typed=False)
    model = make_model(graph[0], "graphsage")
    run(tmp_path / "kept", model, graph, None, 1 << 20)
    kept = np.load(tmp_path / "kept" / "layer2.npy", mmap_mode="r+")
    kept[699] += np.float32(1e-6)
    kept.flush()
    place = FormerLayers(tmp_path / "kept", graph[0].folder, graph[1].folder)
    with pytest.raises(AuditError, match="differ"):
        run(tmp_path / "delta", model, graph, place, 900)


@pytest.mark.parametrize(("scale", "computed"), [(1.5, 300), (1.0, 0)])  # as a transform does that was fitted anew
def test_all_features_change_or_none(tmp_path: Path, scale: float, computed: int) -> None:
    world: World = first_night(300, 0)
    former = write(tmp_path / "former", world, seed=1, typed=True)
    world.feat = world.feat * np.float32(scale)
    newer = write(tmp_path / "newer", world, seed=2, typed=True)
    model = make_model(former[0], "gcn")
    run(tmp_path / "kept", model, former, None, 1 << 20)
    place = FormerLayers(tmp_path / "kept", former[0].folder, former[1].folder)
    assert run(tmp_path / "delta", model, newer, place, 1 << 20).told.computed == [computed] * 3


def test_a_convolution_maps_or_sums_first_by_its_widths_alone(tmp_path: Path) -> None:
    """Elsewhere the shape of the block decides, and the two orders end in other bits."""
    graph, _ = write(tmp_path, first_night(900, 3, 136), seed=1, typed=False)
    store = GraphStore(graph.folder, graph.manifest)
    torch.manual_seed(0)
    rows, conv, features = RowStable(store), SageConv(136, 130, "mean"), FeatureSource(store["feat"], None)
    with torch.no_grad():
        all_rows = rows.layer_rows(conv, features, store["feat"], np.arange(900))
        some = np.arange(0, 900, 31)
        assert np.array_equal(rows.layer_rows(conv, features, store["feat"], some), all_rows[some])
