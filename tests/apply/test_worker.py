"""Scores and vectors of published models, against the predictor that evaluation uses."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
import torch

from configs.errors import DataError, RecipeError, StageError
from configs.label_types import label_type
from models.base import GraphModel
from tasks.apply.model.files import load_published, write_model
from tasks.apply.run import threshold_of
from tasks.apply.worker import ServeJob, Serving
from tasks.inference import predictor
from tasks.inference.former_layers import KeepJob
from tasks.inference.predictor import Predictor, evaluating
from tasks.kinds.judged import Threshold
from tasks.kinds.of import predict
from tasks.readers.formulas import unguarded
from tasks.stage import Parent
from tasks.storage.graph_store import Array, GraphStore
from tasks.storage.outputs.tables import CsvOutput
from tests.finished import dataset, trained
from tests.support import as_partition, link_graph, molecule_graph, node_graph


class Case:
    """A graph, its data set and a published model with random weights."""

    def __init__(self, folder: Path, graph: Parent, data: Parent, model: str) -> None:
        self.folder, self.graph, self.data = folder, graph, data
        self.write()
        self.model_folder = folder / "model"
        checkpoint = trained(folder / "train", graph, model).folder / "best.pt"
        write_model(self.model_folder, checkpoint, "demo", {"name": "demo"}, {})

    def write(self) -> None:
        (self.graph.folder / "manifest.json").write_text(self.graph.manifest.model_dump_json())

    @property
    def model(self) -> GraphModel:
        return load_published(self.model_folder)

    @property
    def predictor(self) -> Predictor:
        return Predictor(GraphStore(self.graph.folder, self.graph.manifest))

    def vectors(self) -> Array:
        model = self.model
        with evaluating(model):
            return np.asarray(self.predictor.node_vectors(model))

    def serve(self, what: Any = "predictions", format: Any = "parquet", **changes: Any) -> dict[str, Any]:
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        values: dict[str, Any] = {
            "what": what,
            "format": format,
            "model": self.model_folder,
            "graph": self.graph.folder,
            "dataset": self.data.folder,
            "work": work,
            "own_graph": True,
            "given": {},
            "node_type": None,
            "classes": None,
            "batch_size": 64,
            "device": "cpu",
            "threads": 1,
        }
        return Serving(ServeJob(**{**values, **changes})).run()

    def table(self, name: str = "predictions.parquet") -> Any:
        return pq.read_table(self.folder / "work" / name)

    def csv(self, **columns: Any) -> Path:
        pc.write_csv(pa.table(columns), self.folder / "given.csv")
        return self.folder / "given.csv"


def shuffle(graph: Parent) -> Array:
    """Give the graph another order than the data set: node v is node_ids[v] there."""
    ids = np.random.default_rng(5).permutation(graph.manifest.num_nodes).astype(np.int64)
    np.save(graph.folder / "node_ids.npy", ids)
    return ids


@pytest.fixture
def nodes(tmp_path: Path) -> Case:
    graph = as_partition(node_graph(tmp_path / "graph", num_nodes=301))
    shuffle(graph)
    ids = [f"user-{i}" for i in range(301)]
    return Case(tmp_path, graph, dataset(tmp_path / "data", graph, ids, ["a", "b", "c", "d"]), "graphsage")


@pytest.fixture
def links(tmp_path: Path) -> Case:
    graph = as_partition(link_graph(tmp_path / "graph", dim=8))
    shuffle(graph)
    return Case(tmp_path, graph, dataset(tmp_path / "data", graph, [1000 + i for i in range(200)]), "graphsage")


@pytest.fixture
def molecules(tmp_path: Path) -> Case:
    graph = as_partition(molecule_graph(tmp_path / "graph"))
    data = dataset(tmp_path / "data", graph, graphs=[f"mol-{i}" for i in range(120)])
    return Case(tmp_path, graph, data, "gin")


def test_all_nodes_in_the_order_of_the_data(nodes: Case) -> None:
    done = nodes.serve(classes=["w", "x", "y", "z"])
    assert (done["rows"], done["files"]) == (301, ["predictions.parquet"])
    table = nodes.table().to_pandas()
    assert table.id.tolist() == [f"user-{i}" for i in range(301)]
    store = GraphStore(nodes.graph.folder, nodes.graph.manifest)
    scores = nodes.predictor.node_scores(nodes.model, np.arange(301))
    node_ids = np.asarray(store["node_ids"])
    of_user = np.argsort(node_ids)
    assert table.prediction.tolist() == ["wxyz"[c] for c in scores.argmax(1)[of_user]]
    assert table.label.tolist() == ["abcd"[c] for c in np.asarray(store["label"])[of_user]], "the data's own names"
    for split in ("train", "valid", "test"):
        users = {f"user-{i}" for i in node_ids[np.asarray(store[f"{split}_idx"])]}
        assert set(table.id[table.split == split]) == users


def test_given_nodes_in_their_order_and_as_often(nodes: Case) -> None:
    whole = nodes.serve() and nodes.table().to_pandas().set_index("id")
    asked = ["user-7", "user-300", "user-0", "user-7"]
    done = nodes.serve(given={"nodes": nodes.csv(name=asked, x=[1, 2, 3, 4])})
    table = nodes.table().to_pandas()
    assert done["rows"] == 4
    assert table.id.tolist() == asked
    np.testing.assert_allclose(table.score, whole.score[asked], atol=1e-6)
    assert table.prediction.tolist() == whole.prediction[asked].tolist()


def test_probabilities_as_a_matrix(nodes: Case) -> None:
    nodes.serve()
    table = nodes.table().to_pandas()
    done = nodes.serve(format="npy")
    assert done["files"] == ["predictions.npy", "predictions.ids.parquet"]
    matrix = np.load(nodes.folder / "work" / "predictions.npy")
    assert nodes.table("predictions.ids.parquet").column("id").to_pylist() == table.id.tolist()
    np.testing.assert_allclose(matrix.sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(matrix.max(1), table.score, atol=1e-6)
    assert matrix.argmax(1).tolist() == table.prediction.tolist()


@pytest.mark.parametrize("format", ["csv", "csv.gz"])
@pytest.mark.parametrize("kind", ["nodes", "links"])
def test_predictions_as_csv_are_those_of_parquet(kind: str, format: str, request: pytest.FixtureRequest) -> None:
    case: Case = request.getfixturevalue(kind)
    asked = {"source": [1003, 1007], "target": [1190, 1000]}
    changes: dict[str, Any] = {"classes": ["w", "=x", "y", "z"]}
    if kind == "links":
        changes = {"given": {"pairs": case.csv(**asked)}}
    case.serve(**changes)
    expected = case.table().to_pandas()
    (case.folder / "work" / "predictions.parquet").unlink()
    done = case.serve(format=format, **changes)
    assert done["files"] == [f"predictions.{format}"]
    assert not (case.folder / "work" / "predictions.parquet").exists()
    found = pc.read_csv(case.folder / "work" / done["files"][0]).to_pandas()
    assert list(found.columns) == list(expected.columns)
    for column in ("id", "split", "prediction", "source"):
        if column in expected:
            cells = pa.array(found[column])
            assert unguarded(cells).to_pylist() == expected[column].tolist()
            assert "=x" not in cells.to_pylist()
    np.testing.assert_allclose(found.score, expected.score, atol=1e-6)


def test_a_list_in_a_cell_becomes_columns_in_csv(tmp_path: Path) -> None:
    lists = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, None, 5, 6], pa.int8()), 2)
    with CsvOutput(tmp_path / "x.csv") as writer:
        for part in (slice(0, 2), slice(2, 3)):
            writer.write(pa.table({"id": pa.array(["a", "b", "c"])[part], "label": lists[part]}))
    assert (tmp_path / "x.csv").read_text() == '"id","label_0","label_1"\n"a",1,2\n"b",3,\n"c",5,6\n'


def test_pairs_are_no_matrix(links: Case) -> None:
    with pytest.raises(RecipeError, match="pairs have no rows of a matrix"):
        links.serve(format="npy", given={"pairs": links.csv(source=[1003], target=[1007])})


def test_a_class_is_predicted_from_a_probability_on(nodes: Case) -> None:
    nodes.serve()
    before = nodes.table().to_pandas()
    matrix = _matrix(nodes)
    nodes.serve(threshold=Threshold(2, 0.2))
    after = nodes.table().to_pandas()
    flagged = matrix[:, 2] >= 0.2
    assert 0 < flagged.sum() < len(flagged)
    assert (after.prediction == 2).tolist() == flagged.tolist()
    others = np.where(np.arange(4) == 2, -1, matrix).argmax(1)
    assert after.prediction[~flagged].tolist() == others[~flagged].tolist()
    assert after.prediction[(before.prediction != 2) & ~flagged].equals(
        before.prediction[(before.prediction != 2) & ~flagged]
    )
    np.testing.assert_allclose(after.score, matrix[np.arange(len(matrix)), after.prediction], atol=1e-6)


def test_a_binary_label_is_1_from_a_probability_on(molecules: Case) -> None:
    molecules.serve()
    scores = molecules.table().to_pandas().score
    middle = float(np.median(scores))
    molecules.serve(threshold=Threshold(1, middle))
    after = molecules.table().to_pandas()
    assert after.prediction.tolist() == (after.score >= middle).astype(int).tolist()
    np.testing.assert_allclose(after.score, scores, atol=1e-6)


def _matrix(case: Case) -> Array:
    case.serve(format="npy")
    return np.load(case.folder / "work" / "predictions.npy")


@pytest.mark.parametrize(
    ("text", "task_type", "said"),
    [
        ("0.3", "multiclass", "say of which class: cat=0.3, dog=0.3$"),
        ("cow=0.3", "multiclass", "no class 'cow'"),
        ("0", "binary", "a probability between 0 and 1"),
        ("nan", "binary", "a probability between 0 and 1"),
        ("=x", "binary", "a probability between 0 and 1"),
        ("0=0.3", "binary", "give that of class 1"),
        ("0.3", "regression", "is for classes, and d is a regression"),
    ],
)
def test_what_is_no_threshold_is_refused(text: str, task_type: str, said: str) -> None:
    manifest: Any = SimpleNamespace(
        task_type=task_type, label_type=label_type(task_type), heads=(), dataset="d", num_classes=2
    )
    with pytest.raises(RecipeError, match=said):
        threshold_of(text, manifest, ["cat", "dog"])
    classes: Any = SimpleNamespace(label_type=label_type("multiclass"), num_classes=2)
    assert threshold_of("dog=.3", classes, ["cat", "dog"]) == Threshold(1, 0.3)


@pytest.mark.parametrize("kind", ["nodes", "molecules"])
def test_no_row_need_be_called_one_of_a_split(kind: str, request: pytest.FixtureRequest) -> None:
    case: Case = request.getfixturevalue(kind)
    done = case.serve(names_splits=False)
    table = case.table().to_pandas()
    assert len(table) == done["rows"]
    assert table.split.isna().all()


@pytest.mark.parametrize("large", [False, True])
def test_vectors_are_what_the_head_reads(nodes: Case, monkeypatch: pytest.MonkeyPatch, large: bool) -> None:
    if large:  # layer by layer, over scratch files
        monkeypatch.setattr(predictor, "widest", lambda model: 1 << 40)
    done = nodes.serve("embeddings")
    assert (done["rows"], done["dim"]) == (301, 16)
    vectors = np.array(nodes.table("embeddings.parquet").column("embedding").to_pylist(), np.float32)
    ids = nodes.table("embeddings.parquet").column("id").to_pylist()
    nodes.serve(format="npy")
    matrix = np.load(nodes.folder / "work" / "predictions.npy")
    with torch.no_grad():
        scores = nodes.model.head.linear(torch.from_numpy(vectors)).softmax(1).numpy()  # type: ignore[operator, union-attr]
    np.testing.assert_allclose(scores, matrix, atol=1e-5)
    nodes.serve("embeddings", "npy", given={"nodes": nodes.csv(id=["user-9", "user-3"])})
    few = np.load(nodes.folder / "work" / "embeddings.npy")
    np.testing.assert_allclose(few, vectors[[ids.index("user-9"), ids.index("user-3")]], atol=1e-5)


def test_pairs_are_scored(links: Case) -> None:
    asked = {"source": [1003, 1007, 1003], "target": [1190, 1000, 1004]}
    done = links.serve(given={"pairs": links.csv(**asked)})
    table = links.table().to_pandas()
    assert done["rows"] == 3
    assert list(table.columns) == ["source", "target", "score"]
    place = np.argsort(np.load(links.graph.folder / "node_ids.npy"))
    pairs = np.stack([place[np.array(asked[end]) - 1000] for end in ("source", "target")], 1)
    model, vectors = links.model, torch.from_numpy(links.vectors())
    with evaluating(model):
        expected = links.predictor.pair_scores(model, vectors, pairs)
    np.testing.assert_allclose(table.score, expected, atol=1e-6)
    assert links.serve("embeddings")["rows"] == 200


@pytest.mark.parametrize("kind", ["links", "nodes"])
def test_pairs_and_nodes_while_layers_are_kept(kind: str, request: pytest.FixtureRequest) -> None:
    case: Case = request.getfixturevalue(kind)
    asked = {"source": [1003, 1007, 1003], "target": [1190, 1000, 1004]}
    given = {"pairs": case.csv(**asked)} if kind == "links" else {}
    keep = KeepJob(case.folder / "kept", is_complete=False, former=None)
    keep.folder.mkdir()
    case.serve(given=given)
    plain = case.table().to_pandas()
    done = case.serve(given=given, keep=keep)
    assert done["kept"]["computed"] == [done["kept"]["rows"]] * 2
    found = case.table().to_pandas()
    np.testing.assert_allclose(found.score, plain.score, atol=1e-5)
    case.serve(given=given, keep=KeepJob(keep.folder, is_complete=True, former=None))
    assert case.table().to_pandas().equals(found)


def test_graphs_and_their_vectors(molecules: Case) -> None:
    molecules.serve(format="npy")
    whole = np.load(molecules.folder / "work" / "predictions.npy")
    store = GraphStore(molecules.graph.folder, molecules.graph.manifest)
    expected = predict(molecules.predictor, molecules.model, "test").scores
    assert expected is not None
    np.testing.assert_allclose(whole[np.asarray(store["test_idx"])], 1 / (1 + np.exp(-expected)), atol=1e-5)
    molecules.serve(given={"graphs": molecules.csv(graph_id=["mol-9", "mol-2"])})
    table = molecules.table().to_pandas()
    assert table.graph_id.tolist() == ["mol-9", "mol-2"]
    np.testing.assert_allclose(table.score, whole[[9, 2], 0], atol=1e-6)
    assert molecules.serve("embeddings")["rows"] == 120
    vectors = np.array(molecules.table("embeddings.parquet").column("embedding").to_pylist(), np.float32)
    with torch.no_grad():
        scores = molecules.model.head.linear(torch.from_numpy(vectors)).sigmoid().numpy()  # type: ignore[operator, union-attr]
    np.testing.assert_allclose(scores, whole, atol=1e-5)


@pytest.fixture
def repeated(tmp_path: Path) -> Case:
    """Molecules of which three have one name."""
    graph = as_partition(molecule_graph(tmp_path / "graph"))
    names = ["water" if i in (3, 50, 119) else f"mol-{i}" for i in range(120)]
    return Case(tmp_path, graph, dataset(tmp_path / "data", graph, graphs=names), "gin")


def test_graphs_of_one_name_are_told_apart_by_their_row(repeated: Case) -> None:
    repeated.serve()
    whole = repeated.table().to_pandas()
    assert list(whole.columns) == ["graph_id", "row", "split", "label", "prediction", "score", "probability_1"]
    assert (whole.probability_1 == whole.score).all()
    assert whole.row.tolist() == list(range(120))
    assert whole.row[whole.graph_id == "water"].tolist() == [3, 50, 119]
    for what, options in (("predictions", {"format": "npy"}), ("embeddings", {}), ("embeddings", {"format": "npy"})):
        done = repeated.serve(what, **options)
        assert repeated.table(done["files"][-1]).column("row").to_pylist() == list(range(120))

    repeated.serve(given={"graphs": repeated.csv(graph_id=["water", "mol-7", "water"], row=[119, 8, 3])})
    table = repeated.table().to_pandas()
    assert table.row.tolist() == [119, 7, 3], "the row counts where the name does not tell"
    np.testing.assert_allclose(table.score, whole.score[[119, 7, 3]], atol=1e-6)
    named = r"given\.csv \(column graph_id\): 'water' \(row [12]\) names 3 of them; say which in a column row, as files"
    for columns in ({}, {"row": [119, 3, 4]}, {"row": [119, 3, 999]}, {"row": ["x", "3", ""]}):
        given = repeated.csv(graph_id=["mol-5", "water", "water"], **columns)
        with pytest.raises(DataError, match=named):
            repeated.serve(given={"graphs": given})


def test_nodes_of_one_name_are_told_apart_by_their_row(tmp_path: Path) -> None:
    graph = as_partition(node_graph(tmp_path / "graph", num_nodes=90))
    node_ids = shuffle(graph)
    data = dataset(tmp_path / "data", graph, ["twin" if i in (4, 80) else f"n{i}" for i in range(90)])
    case = Case(tmp_path, graph, data, "gcn")
    assert sorted(node_ids) == list(range(90))
    case.serve()
    whole = case.table().to_pandas()
    assert whole.row[whole.id == "twin"].tolist() == [4, 80]
    assert case.serve("embeddings")["rows"] == 90
    assert case.table("embeddings.parquet").column_names == ["id", "row", "embedding"]
    case.serve(given={"nodes": case.csv(id=["twin", "n3"], row=[80, 0])})
    table = case.table().to_pandas()
    assert table.row.tolist() == [80, 3]
    np.testing.assert_allclose(table.score, whole.score[[80, 3]], atol=1e-6)
    with pytest.raises(DataError, match=r"given\.csv \(column id\): 'twin' \(row 0\) names 2 of them"):
        case.serve(given={"nodes": case.csv(id=["twin"])})


def test_ids_that_are_not_there_are_named_with_their_row(nodes: Case) -> None:
    given = nodes.csv(id=["user-1", "user-999", "nobody"])
    with pytest.raises(DataError, match=r"given\.csv \(row 1, column id\): 'user-999' is not in the data, and 1 more"):
        nodes.serve(given={"nodes": given})
    other = nodes.csv(account=["user-1", "user-999"])
    with pytest.raises(DataError, match=r"\(row 1, column account\): 'user-999'"):
        nodes.serve(given={"nodes": other})
    lines = other.with_suffix(".txt")
    lines.write_text("user-1\nuser-999\n")
    with pytest.raises(DataError, match=r"\(row 1, column id\): 'user-999'"):
        nodes.serve(given={"nodes": lines})
    with pytest.raises(DataError, match="'7' is not in the data, and 1 more; the data's ids are texts such as 'user-"):
        nodes.serve(given={"nodes": nodes.csv(id=[7, 8])})


def test_pairs_that_cannot_be_scored_are_named(links: Case) -> None:
    with pytest.raises(DataError, match=r"column target\): 5 is not in the data"):
        links.serve(given={"pairs": links.csv(source=[1000], target=[5])})
    with pytest.raises(DataError, match=r"column payee\): 5 is not in the data"):
        links.serve(given={"pairs": links.csv(payer=[1000], payee=[5])})
    with pytest.raises(DataError, match=r"\(row 0, column source\): 'x' is no id here: the data's ids are"):
        links.serve(given={"pairs": links.csv(source=["x"], target=["y"])})
    with pytest.raises(DataError, match=r"has 1 column\(s\), 2 are needed: source, target"):
        links.serve(given={"pairs": links.csv(source=[1000])})


def test_nodes_that_are_left_out_of_the_graph(tmp_path: Path) -> None:
    """A graph of 90 of the data's 100 nodes, as `components` leaves it."""
    graph = as_partition(node_graph(tmp_path / "graph", num_nodes=90))
    kept = np.sort(np.random.default_rng(0).permutation(100)[:90])
    np.save(graph.folder / "node_ids.npy", kept)
    graph = Parent(graph.manifest.model_copy(update={"type_offsets": (0, 100)}), graph.folder)
    data = dataset(tmp_path / "data", graph, [f"n{i}" for i in range(100)])
    gone = next(i for i in range(100) if i not in kept)
    case = Case(tmp_path, graph, data, "gcn")
    assert case.serve()["rows"] == 90
    assert case.table().column("id").to_pylist() == [f"n{i}" for i in kept]
    with pytest.raises(DataError, match=f"'n{gone}' is left out of the graph"):
        case.serve(given={"nodes": case.csv(id=[f"n{gone}"])})


def test_a_model_with_a_vector_a_node_knows_its_own_graph_only(tmp_path: Path) -> None:
    graph = as_partition(link_graph(tmp_path / "graph"))
    case = Case(tmp_path, graph, dataset(tmp_path / "data", graph), "gcn")
    assert case.serve("embeddings")["rows"] == 200
    with pytest.raises(RecipeError, match=r"gcn learnt a vector for each of its 200 nodes \(encoder\.embedding\)"):
        case.serve("embeddings", own_graph=False)


def test_a_graph_of_another_width_is_refused(nodes: Case) -> None:
    manifest = nodes.graph.manifest.model_copy(update={"feature_dim": 17})
    nodes.graph = Parent(manifest, nodes.graph.folder)
    nodes.write()
    with pytest.raises(DataError, match="trained on a graph with feature_dim=16, this one has 17"):
        nodes.serve(own_graph=False)


@pytest.mark.parametrize("kind", ["nodes", "links", "molecules"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_no_numbers_are_refused(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str, value: float
) -> None:
    case: Case = request.getfixturevalue(kind)
    model = case.model
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(value)
    monkeypatch.setattr("tasks.apply.model.files.load_published", lambda _: model)
    with pytest.raises(StageError, match="are no numbers"):
        case.serve(given={"pairs": case.csv(source=[1003], target=[1010])} if kind == "links" else {})
    with pytest.raises(StageError, match="are no numbers"):
        case.serve("embeddings")
