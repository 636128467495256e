"""Files of dgl.save_graphs: what DGL writes is read, what is wrong is named, and what graphmill writes comes back."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import DataError, StageError
from configs.registry import DATASETS
from configs.schema import Recipe
from models.dgl.adapter import load_dgl
from tasks.apply.graph_file import write_dgl
from tasks.apply.model.needs import label_columns
from tasks.ingest.stage import STAGE as INGEST
from tasks.preprocess.stage import STAGE as PREPROCESS
from tasks.readers.arrays.dgl_file import read_dgl_file
from tasks.stage import Parent, run_stage
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tests.ingest.conftest import Ingest
from tests.support import WITHOUT_DGL

pytestmark = pytest.mark.skipif(WITHOUT_DGL, reason="DGL has no wheel for this Python")

NUM = 6


def masks(num: int = NUM) -> dict[str, Any]:
    kind = torch.arange(num) % 3
    return {name: kind == i for i, name in enumerate(("train_mask", "val_mask", "test_mask"))}


def ring(num: int = NUM, **ndata: Any) -> Any:
    graph = load_dgl().graph((torch.arange(num), (torch.arange(num) + 1) % num))
    graph.ndata.update(
        {"feat": torch.arange(2.0 * num).view(num, 2), "label": torch.arange(num) % 3, **masks(num), **ndata}
    )
    return graph


def save(path: Path, *graphs: Any, labels: dict[str, Any] | None = None, **options: Any) -> str:
    load_dgl().save_graphs(str(path), list(graphs), labels or {}, **options)
    return str(path)


def test_a_graph_with_all_that_it_may_carry(ingest: Ingest, folder: Path) -> None:
    graph = ring(original_id=torch.arange(NUM) * 10, time=torch.arange(NUM), feat_cat=torch.arange(NUM) % 2)
    graph.edata.update({"feat": torch.ones(NUM, 3), "weight": torch.rand(NUM), "time": torch.arange(NUM) + 2000})
    store = ingest(name="dgl", path=save(folder / "g.bin", graph))
    manifest = store.manifest
    assert (manifest.task, manifest.task_type, manifest.num_classes) == ("node", "multiclass", 3)
    assert [one.kind for one in manifest.node_types[0].features] == ["numeric", "categorical"]
    assert manifest.node_types[0].features[1].cardinalities == (2,)
    assert store.column("ids/node", "original_id").tolist() == [0, 10, 20, 30, 40, 50]
    assert store.column("nodes/node", "time").tolist() == list(range(NUM))
    assert store.column("nodes/node", "label").tolist() == [0, 1, 2, 0, 1, 2]
    assert store.column("split/valid", "node_id").tolist() == [1, 4]
    edges = "edges/node__to__node"
    assert store.column(edges, "dst").tolist() == [1, 2, 3, 4, 5, 0]
    assert store.column(edges, "time").tolist() == list(range(2000, 2000 + NUM))
    np.testing.assert_array_equal(store.column(edges, "weight"), graph.edata["weight"].numpy())
    assert DATASETS.create(DATASETS.config({"name": "dgl", "path": str(folder / "g.bin")})).time_unit() == "number"


def test_labels_of_edges(ingest: Ingest, folder: Path) -> None:
    graph = ring()
    graph.edata.update({"label": torch.arange(NUM) % 3 - 1, "feat": torch.ones(NUM, 3)})
    kind = torch.tensor([3, 0, 1, 3, 0, 2])
    graph.edata.update({name: kind == i for i, name in enumerate(("train_mask", "val_mask", "test_mask"))})
    store = ingest(name="dgl", path=save(folder / "g.bin", graph), task="edge", task_type="multiclass")
    assert store.manifest.labelled_edges.num_edges == NUM
    assert store.column("edge_labels/node__to__node", "label").tolist() == [-1, 0, 1, -1, 0, 1]
    assert store.column("split/train", "edge_id").tolist() == [1, 4]
    assert not store.manifest.ordered_ends


@pytest.mark.parametrize("formats", [["coo"], ["csr"], ["csc"], ["coo", "csr", "csc"]])
@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
def test_every_form_in_which_dgl_saves_edges(folder: Path, formats: list[str], idtype: torch.dtype) -> None:
    torch.manual_seed(0)
    src, dst = torch.randint(0, 7, (2, 40))
    graph = load_dgl().graph((src, dst), num_nodes=7, idtype=idtype)
    found = read_dgl_file(Path(save(folder / "g.bin", graph, formats=formats))).graphs[0]
    [ends] = found.edges.values()
    got, expected = (
        sorted(zip(*map(np.ndarray.tolist, pair), strict=True)) for pair in (ends, (src.numpy(), dst.numpy()))
    )
    assert got == expected
    if formats == ["coo"]:
        np.testing.assert_array_equal(ends[0], src.numpy())


def test_types_of_nodes_and_edges(ingest: Ingest, folder: Path) -> None:
    data = {("u", "likes", "v"): ([0, 1, 2], [0, 1, 0]), ("u", "knows", "u"): ([0, 1], [1, 2])}
    graph = load_dgl().heterograph(data, num_nodes_dict={"u": 6, "v": 2})
    graph.nodes["u"].data.update({"label": torch.tensor([0, 1, 0, 1, 1, -1]), **masks(6), "feat": torch.ones(6)})
    graph.nodes["u"].data["test_mask"] = torch.tensor([False] * 2 + [True] + [False] * 3)
    graph.edges["likes"].data["weight"] = torch.tensor([0.5, 1.0, 2.0])
    store = ingest(name="dgl", path=save(folder / "g.bin", graph))
    assert [one.name for one in store.manifest.edge_types] == ["u__knows__u", "u__likes__v"]
    assert (store.manifest.target_type, store.manifest.task_type) == ("u", "binary")
    assert store.column("edges/u__likes__v", "weight").tolist() == [0.5, 1.0, 2.0]


def test_types_share_the_codes_of_their_categories(home: Home, folder: Path) -> None:
    graph = load_dgl().heterograph({("u", "likes", "v"): ([0, 1, 2, 5], [0, 1, 0, 1])}, num_nodes_dict={"u": 6, "v": 2})
    graph.nodes["u"].data.update({"label": torch.arange(6) % 3, **masks(6), "feat_cat": torch.arange(6).view(6, 1) % 3})
    graph.nodes["v"].data["feat_cat"] = torch.tensor([[3], [3]])
    dataset = {"name": "dgl", "path": save(folder / "g.bin", graph)}
    first, _ = preprocessed(home, dataset, **AS_IT_IS)
    assert first["feat_cat"].ravel().tolist() == [0, 1, 2, 0, 1, 2, 3, 3]


def test_types_of_other_widths_have_columns_of_their_own(home: Home, folder: Path) -> None:
    """Also in what is exported: each type gets its own columns back."""
    graph = load_dgl().heterograph(
        {("u", "likes", "v"): ([0, 1], [0, 1]), ("v", "of", "u"): ([0], [1])}, {"u": 6, "v": 2}
    )
    graph.nodes["u"].data.update({"label": torch.arange(6) % 3, **masks(6), "feat": torch.rand(6, 3)})
    graph.nodes["v"].data["feat"] = torch.rand(2, 2)
    graph.edges["likes"].data["feat"] = torch.rand(2, 2)
    graph.edges["of"].data["feat"] = torch.rand(1, 1)
    first, dataset = preprocessed(home, {"name": "dgl", "path": save(folder / "g.bin", graph)}, **AS_IT_IS)
    columns = [first.manifest.type_columns[kind].numeric for kind in ("u", "v")]
    assert columns == [(0, 1, 2), (3, 4)]
    np.testing.assert_array_equal(first["feat"][6:, 3:], graph.nodes["v"].data["feat"].numpy())
    write_dgl(first, dataset, folder / "h.bin")
    [found] = read_dgl_file(folder / "h.bin").graphs
    np.testing.assert_array_equal(found.ndata["v"]["feat"], graph.nodes["v"].data["feat"].numpy())
    np.testing.assert_array_equal(found.edata["v", "of", "u"]["feat"], graph.edges["of"].data["feat"].numpy())
    again, _ = preprocessed(home, {"name": "dgl", "path": str(folder / "h.bin")}, **AS_IT_IS)
    assert_same_graph(first, again)


def test_options_that_are_all_written_out_ask_for_no_more(ingest: Ingest, folder: Path) -> None:
    """A recipe that was stored names every default; and `labels` names an array, no columns of a table."""
    config = DATASETS.config({"name": "dgl", "path": save(folder / "g.bin", ring())})
    store = ingest(**config.model_dump())
    assert label_columns(store.manifest) is None


def test_times_are_those_of_the_graph_that_is_read(folder: Path) -> None:
    path = save(folder / "g.bin", ring(), ring(time=torch.arange(NUM)))
    units = [DATASETS.create(DATASETS.config({"name": "dgl", "path": path, "graph": i})).time_unit() for i in (0, 1)]
    assert units == [None, "number"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.uint8, torch.bool])
def test_whole_numbers_of_any_kind(ingest: Ingest, folder: Path, dtype: torch.dtype) -> None:
    time = torch.tensor([0, 1, 1, 0, 1, 0]).to(dtype)
    store = ingest(name="dgl", path=save(folder / "g.bin", ring(time=time)))
    assert store.column("nodes/node", "time").tolist() == [0, 1, 1, 0, 1, 0]


def test_many_graphs(ingest: Ingest, folder: Path) -> None:
    graphs = [ring(size) for size in (3, 4, 5, 6, 3, 4)]
    labels = {"label": torch.tensor([0.5, 1.0, 2.25, 3.0, 4.0, 5.0]), **masks()}
    store = ingest(name="dgl", path=save(folder / "g.bin", *graphs, labels=labels), task="graph")
    assert (store.manifest.num_graphs, store.manifest.task_type, store.manifest.metric) == (6, "regression", "rmse")
    assert store.column("graphs", "num_nodes").tolist() == [3, 4, 5, 6, 3, 4]
    assert store.column("edges/node__to__node", "src").max() == 24
    assert store.column("split/test", "graph_id").tolist() == [2, 5]


def test_pairs_from_masks_of_edges(ingest: Ingest, folder: Path) -> None:
    graph = ring()
    graph.edata.update(masks())
    store = ingest(name="dgl", path=save(folder / "g.bin", graph), task="link")
    assert store.column("split/valid", "src").tolist() == [1, 4]
    assert store.column("split/valid", "dst").tolist() == [2, 5]


def wrong_files() -> list[tuple[Callable[[Path], str], dict[str, Any], str]]:
    def one(**ndata: Any) -> Callable[[Path], str]:
        return lambda path: save(path, ring(**ndata))

    def two(path: Path) -> str:
        return save(path, ring(), ring(more=torch.ones(NUM)))

    def weights(*values: float) -> Callable[[Path], str]:
        def make(path: Path) -> str:
            graph = ring()
            graph.edata["weight"] = torch.tensor(values, dtype=torch.float64)
            return save(path, graph)

        return make

    def pairs(negative: Any) -> Callable[[Path], str]:
        given = {f"{split}_edges": torch.tensor([[0, 1]]) for split in ("train", "valid", "test")}
        return lambda path: save(path, ring(), labels={**given, "valid_negative": negative.long()})

    many_with_one_id = {"label": torch.arange(NUM) % 2, **masks(), "original_id": torch.tensor(3)}
    nan = torch.ones(NUM, 2)
    nan[3, 1] = torch.nan
    overlap = torch.ones(NUM, dtype=torch.bool)
    return [
        (one(), {"labels": "lable"}, r"no nodes have 'lable' in ndata \(did you mean 'label'\?\)"),
        (one(), {"features": "feats"}, r"has no field 'feats' \(dataset\.features\) \(did you mean 'feat'\?\)"),
        (one(), {"train": "mask"}, r"ndata of _N\['mask'\]\]: there is no such mask; .* dataset\.train"),
        (one(), {"graph": 1}, r"holds 1 graphs; dataset\.graph must be below that"),
        (one(feat=nan), {}, r"ndata of _N\['feat'\]\] \(row 3, column 1\): nan is not a finite number"),
        (one(feat=torch.ones(NUM, 2, 2)), {}, r"has the shape \(6, 2, 2\)"),
        (one(val_mask=overlap), {}, r"ndata of _N\['val_mask'\]\]: node 0 is in the train split too"),
        (one(val_mask=~overlap), {}, r"the valid split is empty"),
        (one(label=torch.tensor([0, 1, -1, 0, 1, 2])), {}, r"1 of 2 nodes of the test split .*such as node 2"),
        (one(time=torch.ones(NUM) / 2), {}, r"\['time'\]\] \(row 0, column 0\): 0\.5 does not fit int64"),
        (one(label=torch.tensor([0, 1, 7, 0, 1, 2])), {"task_type": "binary"}, r"row 2.*: label 7 is not 0 or 1"),
        (one(), {"task": "graph"}, r"there is no 'label' among labels"),
        (lambda path: save(path, ring(), ring(feat=nan[:, :1])), {"task": "graph"}, "graph 1 has not .*fields"),
        (lambda path: str(path.write_bytes(b"PK" * 40) and path), {}, "is no file of dgl.save_graphs"),
        (one(original_id=torch.zeros(NUM, 0, dtype=torch.uint8)), {}, r"\['original_id'\]\]: has the shape \(6, 0\)"),
        (one(original_id=torch.zeros(NUM, 2)), {}, r"\['original_id'\]\]: has the shape \(6, 2\); \(6,\), or"),
        (two, {"features": "more"}, r"has no field 'more' \(dataset\.features\); where it is read there is feat,"),
        (one(), {"weight": "feat"}, r"has no field 'feat' \(dataset\.weight\); where it is read there is none"),
        (weights(1, 1, -2, 1, 1, 1), {}, r"\(row 2\): the weight -2 is below 0"),
        (weights(1, 1, 1, 1e-60, 1, 1), {}, r"\(row 3\): the weight 1e-60 .* float32"),
        (pairs(torch.zeros(1, 0, 2)), {"task": "link"}, r"labels\['valid_negative'\]\]: holds no pairs; leave it out"),
        (pairs(torch.zeros(0, 2)), {"task": "link"}, r"labels\['valid_negative'\]\]: holds no pairs; leave it out"),
        (lambda path: save(path, *[ring()] * 6, labels=many_with_one_id), {"task": "graph"}, r"has the shape \(\)"),
    ]


@pytest.mark.parametrize("number", range(len(wrong_files())))
def test_what_is_wrong_is_named(ingest: Ingest, folder: Path, number: int) -> None:
    make, options, message = wrong_files()[number]
    with pytest.raises(DataError, match=message):
        ingest(name="dgl", path=make(folder / "g.bin"), **options)


def test_a_damaged_file_is_refused_and_never_believed(ingest: Ingest, folder: Path) -> None:
    """Cut anywhere, or with any byte changed: read as something else, or refused; no other error, no huge array."""
    path = folder / "g.bin"
    save(path, ring(), labels={"a": torch.ones(3)})
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for length in [*range(0, 4096, 512), *range(4096, len(whole), 7)]:
        path.write_bytes(whole[:length])
        with pytest.raises(DataError):
            read_dgl_file(path)
    for at in [*range(32), *range(4096, len(whole))]:
        for value in {0xFF, int(rng.integers(256))} - {whole[at]}:
            path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            with contextlib.suppress(DataError):
                read_dgl_file(path)


def test_offsets_whose_differences_overflow_are_refused(folder: Path) -> None:
    """From 2^63 - 1 down to a negative number is a rise, where numbers wrap around."""
    graph = load_dgl().graph(([0, 1, 2], [1, 2, 3]), num_nodes=4)
    path = Path(save(folder / "g.bin", graph, formats=["csr"]))
    good, bad = (np.array(ends, "<i8").tobytes() for ends in ([0, 1, 2, 3, 3], [0, 2**63 - 1, -5, 3, 3]))
    assert path.read_bytes().count(good) == 1
    path.write_bytes(path.read_bytes().replace(good, bad))
    with pytest.raises(DataError, match="offsets that do not rise"):
        read_dgl_file(path)


def preprocessed(home: Home, section: dict[str, Any], **options: Any) -> tuple[GraphStore, DatasetStore]:
    preprocess = {"workers": 1, **options}
    recipe = Recipe.model_validate({"name": "t", "dataset": section, "preprocess": preprocess, "model": "gcn"})
    first = run_stage(INGEST, recipe, {}, home)
    parent = Parent(first.manifest, first.folder)
    second = run_stage(PREPROCESS, recipe, {"ingest": parent}, home)
    return GraphStore(second.folder, second.manifest), DatasetStore(first.folder, first.manifest)


SMALL = {"name": "synthetic", "num_nodes": 100, "num_edges": 300, "num_classes": 4, "feature_dim": 4}
AS_IT_IS = {"symmetrize": False, "self_loops": "keep"}


def assert_same_graph(first: GraphStore, again: GraphStore) -> None:
    """All arrays but those that only a graph with reverses shares."""
    names = set(first.manifest.arrays) - {"csr_indptr", "csr_indices", "csr_eids"}
    assert names <= set(again.manifest.arrays) | {"node_ids"}
    for name in sorted(names & set(again.manifest.arrays)):
        np.testing.assert_array_equal(again[name], first[name], err_msg=name)
    for field in ("task", "task_type", "num_classes", "num_tasks", "num_nodes", "num_edges", "num_graphs", "splits"):
        assert getattr(first.manifest, field) == getattr(again.manifest, field), field


@pytest.mark.parametrize("task", ["node", "link"])
def test_an_exported_graph_comes_back(home: Home, folder: Path, task: str) -> None:
    first, dataset = preprocessed(home, SMALL | {"num_nodes": 400, "num_edges": 1500, "task": task})
    sizes = write_dgl(first, dataset, folder / "g.bin")
    assert sizes == {"nodes": 400, "edges": first.manifest.num_edges, "graphs": 1}
    write_dgl(first, dataset, folder / "same.bin")
    assert (folder / "same.bin").read_bytes() == (folder / "g.bin").read_bytes()
    [graph], _ = load_dgl().load_graphs(str(folder / "g.bin"))
    assert graph.num_edges() == first.manifest.num_edges
    again, _ = preprocessed(home, {"name": "dgl", "path": str(folder / "g.bin"), "task": task}, **AS_IT_IS)
    assert_same_graph(first, again)


def test_types_weights_times_and_texts_come_back(home: Home, folder: Path) -> None:
    graph = load_dgl().heterograph(
        {("u", "likes", "v"): ([0, 1, 2, 5], [0, 1, 0, 1]), ("u", "knows", "u"): ([0, 1], [1, 2])},
        num_nodes_dict={"u": 6, "v": 2},
    )
    words = np.array(["a", "bé", "ccc", "d", "e", "f"]).astype("U")
    padded = np.array([word.encode() for word in words], "S").view(np.uint8).reshape(6, -1)
    graph.nodes["u"].data.update(
        {"label": torch.arange(6) % 3, **masks(6), "feat": torch.rand(6, 2), "original_id": torch.from_numpy(padded)}
    )
    for relation, count in (("likes", 4), ("knows", 2)):
        graph.edges[relation].data.update({"weight": torch.rand(count), "time": torch.arange(count)})
    first, dataset = preprocessed(home, {"name": "dgl", "path": save(folder / "g.bin", graph)}, **AS_IT_IS)
    assert dataset.column("ids/u", "original_id").tolist() == words.tolist()
    write_dgl(first, dataset, folder / "h.bin")
    again, texts = preprocessed(home, {"name": "dgl", "path": str(folder / "h.bin")}, **AS_IT_IS)
    assert_same_graph(first, again)
    assert first.manifest.edge_types == again.manifest.edge_types
    assert texts.column("ids/u", "original_id").tolist() == words.tolist()


def test_graphs_come_back(home: Home, folder: Path) -> None:
    labels = {"label": torch.tensor([[0.0, 1], [1, 0], [0, 0], [1, 1], [0, 1], [1, torch.nan]]), **masks()}
    path = save(folder / "g.bin", *(ring(size) for size in (3, 4, 5, 6, 3, 4)), labels=labels)
    first, dataset = preprocessed(home, {"name": "dgl", "path": path, "task": "graph"}, **AS_IT_IS)
    assert first.manifest.task_type == "multilabel"
    write_dgl(first, dataset, folder / "h.bin")
    again, _ = preprocessed(home, {"name": "dgl", "path": str(folder / "h.bin"), "task": "graph"}, **AS_IT_IS)
    assert_same_graph(first, again)


def test_a_full_disk_is_said_in_a_line(home: Home, folder: Path) -> None:
    first, dataset = preprocessed(home, SMALL)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        with pytest.raises(StageError, match=r"^DGL cannot write .*\.partial \(\d+ MB are free on that disk\): .*$"):
            write_dgl(first, dataset, folder / "g.bin")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(folder.iterdir()) == []
