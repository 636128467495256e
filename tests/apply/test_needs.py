"""Other data is prepared as the training data was: transforms as fitted, categories as numbered; or it is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pytest

from configs.errors import DataError, IntegrityError, RecipeError
from configs.load import build_recipe, dump_recipe
from configs.registry import TRANSFORMS
from configs.schema import Recipe
from tasks.apply.model.needs import DataNeeds, adapted_recipe, label_order
from tasks.calls import load_stage
from tasks.stage import Parent, StageContext, run_stage
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import Array, GraphStore
from tasks.storage.home import Home
from tasks.storage.home_files.caching import PickleCache
from tasks.storage.ids import IdMap
from tasks.storage.manifests import SPLITS

N = 80
COLOURS = ("red", "green", "blue", "grey")
EVERY_TRANSFORM = (
    {"name": "codes", "columns": "colour"},
    {"name": "one_hot", "columns": "shape"},
    {"name": "log1p", "columns": "a"},
    {"name": "standardize", "columns": "a,b"},
    {"name": "min_max", "columns": "c"},
    {"name": "normalize_rows", "columns": "d"},
)


def write_tables(folder: Path, first: int = 0, more: int = 0, seed: int = 0, relation: str = "to") -> None:
    """Nodes n<first> to n<N + more - 1>: whoever is in two data sets has the same cells in both."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(7)
    total = 2 * N
    values = {name: rng.gamma(2.0, 10.0 * (1 + i), total) for i, name in enumerate("abcde")}
    values["a"][N:] *= 50  # what is new is far away
    cells = {
        "id": [f"n{i}" for i in range(total)],
        **values,
        "colour": [COLOURS[(i // 3) % 3] if i < N else COLOURS[3 - i % 4] for i in range(total)],
        "shape": [("round", "square")[i % 2] if i < N or i % 5 else "flat" for i in range(total)],
        "label": [("cat", "dog")[(i * 7 // 3) % 2] for i in range(total)],
        "when": np.arange(total),
    }
    rows = np.arange(first, N + more)
    # In another order, so that categories appear in another one too.
    rows = rows if seed == 0 else np.random.default_rng(seed).permutation(rows)
    pc.write_csv(pa.table(cells).take(pa.array(rows)), folder / "nodes.csv")
    src, dst = np.random.default_rng(seed).choice(rows, (2, 200))
    edges = {"src": [f"n{i}" for i in src], "dst": [f"n{i}" for i in dst], "kind": [relation] * 200}
    pc.write_csv(pa.table(edges), folder / "edges.csv")


def recipe_of(folder: Path, **changes: Any) -> Recipe:
    nodes = {"files": str(folder / "nodes.csv"), "features": list("abcde"), "categorical": ["colour", "shape"]}
    dataset = {
        "name": "tables",
        "nodes": {**nodes, "label": "label", "time": "when"},
        "edges": {"files": str(folder / "edges.csv"), "relation_column": "kind"},
        "split": {"by": "ratio", "seed": len(folder.name)},
    }
    return build_recipe(
        {
            "name": "demo",
            "dataset": {**dataset, **changes.pop("dataset", {})},
            "model": "gcn",
            "snapshot": changes.pop("snapshot", {}),
            "preprocess": {"transforms": EVERY_TRANSFORM, "workers": 1, **changes},
        }
    )


class Prepared:
    """Artifacts of a recipe's first stages."""

    def __init__(self, home: Home, recipe: Recipe, *stages: str) -> None:
        self.home, self.recipe, self.parents = home, recipe, {}
        self.run(*(stages or ("ingest", "preprocess")))

    def run(self, *stages: str) -> None:
        # As a flow does: the recipe travels as plain values.
        recipe = build_recipe(dump_recipe(self.recipe))
        for name in stages:
            self.parents[name] = run_stage(load_stage(name), recipe, self.parents, self.home).parent

    @property
    def dataset(self) -> DatasetStore:
        parent: Parent = self.parents["ingest"]
        return DatasetStore(parent.folder, parent.manifest)

    @property
    def graph(self) -> GraphStore:
        parent: Parent = self.parents["preprocess"]
        return GraphStore(parent.folder, parent.manifest)

    def rows(self, array: str, names: list[str]) -> Array:
        nodes = IdMap(self.graph, self.dataset).find(pa.array(names), "node")
        assert (nodes >= 0).all()
        return np.asarray(self.graph[array])[nodes]

    def needs(self, folder: Path) -> DataNeeds:
        """What is written when such a model is published, read back."""
        folder.mkdir(exist_ok=True)
        context = StageContext("publish", folder, self.home, PickleCache(self.home))
        DataNeeds.of(context, self.recipe, self.parents).write(folder)
        back = DataNeeds.read(folder)
        assert back is not None
        return back


@pytest.fixture
def trained(home: Home, tmp_path: Path) -> Prepared:
    write_tables(tmp_path / "old")
    return Prepared(home, recipe_of(tmp_path / "old"))


def adapted(home: Home, trained: Prepared, needs: DataNeeds, recipe: Recipe) -> Prepared:
    other = Prepared(home, recipe, "ingest")
    other.recipe = adapted_recipe(recipe, trained.recipe, needs, other.dataset)
    other.run("preprocess")
    return other


def test_a_node_of_both_data_sets_has_the_same_features(trained: Prepared, home: Home, tmp_path: Path) -> None:
    write_tables(tmp_path / "newer", first=20, more=60, seed=3)
    recipe = recipe_of(tmp_path / "newer")
    other = adapted(home, trained, trained.needs(tmp_path / "model"), recipe)
    common = [f"n{i}" for i in range(20, N)]
    old, new = trained.graph.manifest, other.graph.manifest
    assert (new.feature_dim, new.categories) == (old.feature_dim, old.categories)
    np.testing.assert_array_equal(other.rows("feat", common), trained.rows("feat", common))
    np.testing.assert_array_equal(other.rows("feat_cat", common), trained.rows("feat_cat", common))
    fitted_anew = Prepared(home, recipe)
    assert not np.allclose(fitted_anew.rows("feat", common)[:, 0], trained.rows("feat", common)[:, 0], atol=0.05)


def test_a_newer_snapshot_of_the_same_tables(home: Home, tmp_path: Path) -> None:
    """What the snapshot of the training did not know of plays no part in its transforms, then or now."""
    write_tables(tmp_path / "old", more=N)
    trained = Prepared(home, recipe_of(tmp_path / "old", snapshot={"as_of": 60}))
    needs = trained.needs(tmp_path / "model")
    recipe = recipe_of(tmp_path / "old", snapshot={"as_of": 130})
    newer = Prepared(home, recipe, "ingest")
    newer.recipe = adapted_recipe(recipe, trained.recipe, needs, newer.dataset, same_tables=True)
    newer.run("preprocess")
    assert (trained.graph.manifest.num_nodes, newer.graph.manifest.num_nodes) == (61, 131)
    common = [f"n{i}" for i in range(61)]
    for array in ("feat", "feat_cat"):
        np.testing.assert_array_equal(newer.rows(array, common), trained.rows(array, common))
    ids = IdMap(trained.graph, trained.dataset)
    assert ids.find(pa.array(["n60", "n61", "n159", "nobody"]), "node").tolist()[1:] == [-2, -2, -1]


def test_a_model_that_reads_labels_needs_the_same_classes(trained: Prepared, home: Home, tmp_path: Path) -> None:
    write_tables(tmp_path / "newer", seed=3)
    text = (tmp_path / "newer" / "nodes.csv").read_text()
    (tmp_path / "newer" / "nodes.csv").write_text(text.replace('"dog"', '"wolf"'))
    needs = trained.needs(tmp_path / "model")
    recipe = recipe_of(tmp_path / "newer")
    other = Prepared(home, recipe, "ingest")
    adapted_recipe(recipe, trained.recipe, needs, other.dataset)
    model = trained.recipe.model.model_copy(update={"label_reuse": True})
    reading = trained.recipe.model_copy(update={"model": model})
    with pytest.raises(DataError, match="this data has other classes than its training data"):
        adapted_recipe(recipe, reading, needs, other.dataset)


def test_categories_that_the_training_did_not_see_are_unknown(trained: Prepared, home: Home, tmp_path: Path) -> None:
    write_tables(tmp_path / "newer", more=N, seed=3)
    other = adapted(home, trained, trained.needs(tmp_path / "model"), recipe_of(tmp_path / "newer"))
    unknown = trained.graph.manifest.categories[-1] - 1
    grey = [f"n{i}" for i in range(N, 2 * N) if COLOURS[3 - i % 4] == "grey"]
    assert (other.rows("feat_cat", grey)[:, -1] == unknown).all()
    flat = [f"n{i}" for i in range(N, 2 * N) if i % 5 == 0]
    np.testing.assert_array_equal(other.rows("feat", flat)[:, -3:], np.tile([0, 0, 1], (len(flat), 1)))
    assert other.graph.manifest.report["transforms"][0]["transform"] == "recode"


def test_raw_values_are_transformed_by_what_the_training_rows_had(
    trained: Prepared, home: Home, tmp_path: Path
) -> None:
    """Against plain NumPy: the log of column a, by mean and deviation of the old training rows."""
    write_tables(tmp_path / "newer", first=70, more=30, seed=3)
    other = adapted(home, trained, trained.needs(tmp_path / "model"), recipe_of(tmp_path / "newer"))
    a = np.log1p(trained.dataset.column("nodes/node", "a").astype(np.float64))
    train = trained.dataset.column("split/train", "node_id")
    values = np.log1p(other.dataset.column("nodes/node", "a").astype(np.float64))
    expected = (values - a[train].mean()) / a[train].std()
    assert expected.max() > 3
    errors = np.abs(np.asarray(other.graph["feat"], np.float64) - expected[:, None]).max(axis=0)
    assert errors.min() < 1e-4


def test_the_training_data_itself_comes_out_the_same(trained: Prepared, home: Home, tmp_path: Path) -> None:
    other = adapted(home, trained, trained.needs(tmp_path / "model"), trained.recipe)
    for name in ("feat", "feat_cat"):
        np.testing.assert_array_equal(other.graph[name], trained.graph[name])
    assert other.recipe.partition.num_parts == 1  # type: ignore[attr-defined]


def test_categories_without_a_transform_for_unknown_ones_have_the_last_code(home: Home, tmp_path: Path) -> None:
    write_tables(tmp_path / "old")
    trained = Prepared(home, recipe_of(tmp_path / "old", transforms=[]))
    needs = trained.needs(tmp_path / "model")
    write_tables(tmp_path / "mixed", seed=3)
    other = adapted(home, trained, needs, recipe_of(tmp_path / "mixed", transforms=[]))
    names = [f"n{i}" for i in range(N)]
    np.testing.assert_array_equal(other.rows("feat_cat", names), trained.rows("feat_cat", names))
    write_tables(tmp_path / "newer", more=N)
    newer = adapted(home, trained, needs, recipe_of(tmp_path / "newer", transforms=[]))
    np.testing.assert_array_equal(newer.rows("feat_cat", names), trained.rows("feat_cat", names))
    grey = [f"n{i}" for i in range(N, 2 * N) if i % 4 == 0]
    assert newer.graph.manifest.categories == trained.graph.manifest.categories == (4, 3)
    assert set(newer.rows("feat_cat", grey)[:, 0].tolist()) == {3}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"symmetrize": False}, "was trained with preprocess.symmetrize=True, and the recipe says False"),
        ({"transforms": EVERY_TRANSFORM[:3]}, "was trained with preprocess.transforms="),
        (
            {"dataset": {"task": "link", "split": {"by": "ratio"}}},
            "tables is data of the task link, and the model was trained for the task node",
        ),
        ({"features": ["a", "b", "c", "e", "d"]}, "feature columns of node .* e .*, d .* in place of a "),
    ],
)
def test_other_options_and_other_tables_are_refused(
    trained: Prepared, home: Home, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    write_tables(tmp_path / "newer", seed=3)
    dataset: dict[str, Any] = change.pop("dataset", {})
    if features := change.pop("features", None):
        files = str(tmp_path / "newer" / "nodes.csv")
        nodes = {"files": files, "features": features, "categorical": ["colour", "shape"], "label": "label"}
        dataset["nodes"] = nodes
    if dataset.get("task") == "link":
        dataset["nodes"] = {"files": str(tmp_path / "newer" / "nodes.csv"), "features": ["a"]}
        dataset["edges"] = {"files": str(tmp_path / "newer" / "edges.csv")}
        dataset["num_negatives"] = 10
    needs = trained.needs(tmp_path / "model")
    with pytest.raises((RecipeError, DataError), match=message):
        adapted(home, trained, needs, recipe_of(tmp_path / "newer", dataset=dataset, **change))


def embedded(folder: Path, method: str = "fastrp", **changes: Any) -> Recipe:
    transforms = [{"name": "one_hot"}, {"name": "embedding", "method": method, "dim": 6}]
    return recipe_of(folder, **{"transforms": transforms, **changes})


@pytest.mark.parametrize("method", ["prone", "fastrp", "netmf"])
def test_vectors_computed_from_another_graph_are_refused(home: Home, tmp_path: Path, method: str) -> None:
    write_tables(tmp_path / "old")
    trained = Prepared(home, embedded(tmp_path / "old", method))
    needs = trained.needs(tmp_path / "model")
    write_tables(tmp_path / "newer", seed=3)
    message = rf"the transform embedding \(method={method}\) .* Predict on the training data, train anew .*NAME@VERSION"
    with pytest.raises(RecipeError, match=message):
        adapted(home, trained, needs, embedded(tmp_path / "newer", method))
    itself = adapted(home, trained, needs, trained.recipe)
    np.testing.assert_allclose(itself.graph["feat"], trained.graph["feat"], atol=1e-5)


def test_vectors_computed_from_another_snapshot_are_refused(home: Home, tmp_path: Path) -> None:
    write_tables(tmp_path / "old", more=N)
    recipe = embedded(tmp_path / "old", snapshot={"as_of": 60})
    trained = Prepared(home, recipe)
    needs = trained.needs(tmp_path / "model")
    for moment in ({"as_of": 130}, {}):
        newer = embedded(tmp_path / "old", snapshot=moment)
        with pytest.raises(RecipeError, match="those of another graph or snapshot have other axes"):
            adapted_recipe(newer, recipe, needs, trained.dataset, same_tables=True)
    assert adapted_recipe(recipe, recipe, needs, trained.dataset, same_tables=True)
    # The same edges, and perhaps other times.
    with pytest.raises(RecipeError, match="those of another graph or snapshot have other axes"):
        adapted_recipe(recipe, recipe, needs, trained.dataset)


def test_vectors_of_the_same_graph_with_other_labels_and_cells(home: Home, tmp_path: Path) -> None:
    write_tables(tmp_path / "old")
    trained = Prepared(home, embedded(tmp_path / "old"))
    needs = trained.needs(tmp_path / "model")
    write_tables(tmp_path / "newer")
    nodes = tmp_path / "newer" / "nodes.csv"
    nodes.write_text(nodes.read_text().replace('"round"', '"square"').replace('"dog"', '"cat"', 5))
    other = adapted(home, trained, needs, embedded(tmp_path / "newer", dataset={"split": {"by": "ratio", "seed": 8}}))
    assert other.dataset.manifest.digest != trained.dataset.manifest.digest
    np.testing.assert_allclose(other.graph["feat"][:, -6:], trained.graph["feat"][:, -6:], atol=1e-5)


def test_hops_are_scaled_as_in_the_training(home: Home, tmp_path: Path) -> None:
    """Without edges a path is all zeros: what its columns become is the training's scale alone."""
    hops = [{"name": "standardize"}, {"name": "hops", "features": "in", "labels": "in"}]
    write_tables(tmp_path / "old")
    trained = Prepared(home, recipe_of(tmp_path / "old", transforms=hops))
    needs = trained.needs(tmp_path / "model")
    write_tables(tmp_path / "newer", seed=3)
    (tmp_path / "newer" / "edges.csv").write_text("src,dst,kind\nn0,n0,to\n")
    other = adapted(home, trained, needs, recipe_of(tmp_path / "newer", transforms=hops))
    scales = trained.graph.manifest.report["transforms"][-1]["scales"]
    expected = np.concatenate([-np.array(one["mean"]) / np.array(one["deviation"]) for one in scales.values()])
    feat = np.asarray(other.graph["feat"])[:, -len(expected) :]
    np.testing.assert_allclose(feat, np.tile(np.clip(expected, -8, 8), (N, 1)), rtol=1e-5)
    assert np.abs(expected).max() > 0.1
    itself = adapted(home, trained, needs, trained.recipe)
    np.testing.assert_array_equal(itself.graph["feat"], trained.graph["feat"])
    text = (tmp_path / "newer" / "nodes.csv").read_text()
    (tmp_path / "newer" / "nodes.csv").write_text(text.replace('"dog"', '"wolf"'))
    with pytest.raises(DataError, match=r"the model reads labels \(hops\.labels\), and this data has other classes"):
        adapted(home, trained, needs, recipe_of(tmp_path / "newer", transforms=hops))


def test_label_columns_are_taken_down(trained: Prepared, tmp_path: Path) -> None:
    assert trained.needs(tmp_path / "model").labels == ["label"]
    assert label_order(None, ["a", "b"]) is None
    assert label_order(["a"], ["b"]) is None
    assert label_order(["a", "b", "c"], ["c", "a", "b"]) == [2, 0, 1]
    with pytest.raises(DataError, match="it predicts the label columns a, b, and those of this data are a"):
        label_order(["a", "b"], ["a"])


def test_what_other_data_sets_call_labels_is_no_column(home: Home, tmp_path: Path) -> None:
    np.savez(
        tmp_path / "graph.npz",
        edge_index=np.array([[0, 1, 2, 3], [1, 2, 3, 0]]),
        x=np.ones((4, 2), np.float32),
        y=np.array([0, 1, 0, 1]),
        **{split: np.array([number]) for number, split in enumerate(SPLITS)},
    )
    dataset = {"name": "npz", "path": str(tmp_path / "graph.npz")}
    prepared = Prepared(home, build_recipe({"name": "notebook", "dataset": dataset, "model": "gcn"}))
    assert prepared.needs(tmp_path / "model").labels is None


def test_damaged_files_are_named(trained: Prepared, tmp_path: Path) -> None:
    trained.needs(tmp_path / "model")
    arrays = tmp_path / "model" / "data.npz"
    arrays.write_bytes(arrays.read_bytes()[:-40])
    with pytest.raises(IntegrityError, match=r"data\.json and \.npz are damaged"):
        DataNeeds.read(tmp_path / "model")
    (tmp_path / "model" / "data.json").unlink()
    with pytest.raises(FileNotFoundError):
        DataNeeds.read(tmp_path / "model")


def test_files_of_another_layout_are_refused(trained: Prepared, tmp_path: Path) -> None:
    trained.needs(tmp_path / "model")
    told = tmp_path / "model" / "data.json"
    values = json.loads(told.read_text())
    del values["structure"]
    told.write_text(json.dumps(values))
    with pytest.raises(RecipeError, match="by another version of graphmill; train it again"):
        DataNeeds.read(tmp_path / "model")


def test_the_transforms_are_not_for_recipes(home: Home, tmp_path: Path) -> None:
    write_tables(tmp_path / "old")
    with pytest.raises(RecipeError, match="name the transform itself"):
        Prepared(home, recipe_of(tmp_path / "old", transforms=["learned"]))
    assert not {"learned", "learned_hops", "recode"} & set(TRANSFORMS.names())
