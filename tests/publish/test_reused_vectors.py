"""Vectors of a registered model as features of another recipe, over the real stages and MLflow's own file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from configs.errors import DataError, IntegrityError, RecipeError, StageError
from configs.load import build_recipe, load_recipe
from configs.schema import Recipe
from flows.commands.installation.clean import needed_artifacts
from flows.records.run_record import new_record
from tasks.apply.model.published import Published, read_published
from tasks.apply.run import prepare_for
from tasks.publish.tracking.mlflow_store import Tracker
from tasks.publish.tracking.model_registry import ModelRegistry
from tasks.publish.tracking.registered import fetch_model, find_version
from tasks.publish.tracking.registry import open_registry
from tasks.publish.vectors import provide_vectors, versions_taken, with_recorded_versions, with_versions
from tasks.stage import Parent, StageContext
from tasks.storage.artifacts import ArtifactStore, describe_files
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.home_files.caching import PickleCache
from tasks.storage.ids import IdMap
from tasks.storage.outcomes import VECTORS, VectorsManifest
from tests.publish.line import Line, in_this_process

N, DIM = 60, 6
TEAMS = ("ant", "bee", "cow")


def write_graph(folder: Path, nodes: np.ndarray, seed: int = 0) -> None:
    """Nodes n0, n1, ... that are listed in this order, and edges between them, most of them within a team."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    rows = {"id": [f"n{i}" for i in nodes], "x": nodes * 0.1, "team": [TEAMS[i % 3] for i in nodes]}
    rows["since"] = [2020 + int(i) % 4 for i in nodes]
    pc.write_csv(pa.table(rows), folder / "nodes.csv")
    pairs = rng.integers(0, 2 * N, (2, 40 * N))
    wanted = (pairs[0] != pairs[1]) & ((pairs[0] % 3 == pairs[1] % 3) | (rng.random(40 * N) < 0.1))
    wanted &= np.isin(pairs, nodes).all(0)
    pairs = np.unique(np.sort(pairs[:, wanted], axis=0), axis=1)
    pairs = pairs[:, np.random.default_rng(1).permutation(pairs.shape[1])[:400]]
    edges = {"src": [f"n{i}" for i in pairs[0]], "dst": [f"n{i}" for i in pairs[1]]}
    pc.write_csv(pa.table(edges), folder / "edges.csv")


def recipe_of(folder: Path, name: str, model: Any, *transforms: Any, **changes: Any) -> Recipe:
    """A recipe that trains in a moment; `changes` replace options of the data set, or sections."""
    nodes = {"files": str(folder / "nodes.csv"), "features": ["x"], "time": "since"}
    sections = {key: changes.pop(key) for key in ("snapshot", "components", "tracking") if key in changes}
    link = changes.get("task") == "link"
    data = {"name": "tables", "nodes": nodes if link else {**nodes, "label": "team"}, "title": folder.name}
    train: dict[str, Any] = {"threads": 1, "device": "cpu"}
    if model["name"] in ("graphsage", "mlp"):
        train |= {"loader": "full_edge" if link else "full", "epochs": 3, "learning_rate": 0.05}
    sections["tracking"] = {"system_metrics": False, **sections.get("tracking", {})}
    return build_recipe(
        {
            "name": name,
            "dataset": {**data, "edges": {"files": str(folder / "edges.csv")}, **changes},
            "preprocess": {"transforms": list(transforms), "workers": 1},
            "model": model,
            "train": train,
            **sections,
        }
    )


PRONE = {"name": "prone", "dim": DIM}
SAGE = {"name": "graphsage", "hidden_dim": 8, "num_layers": 2}


def embedding(model: str, **options: Any) -> dict[str, Any]:
    return {"name": "embedding", "model": model, **options}


class Reuse(Line):
    """Runs recipes as a flow does: takes the versions first, and makes their vectors."""

    def run(self, recipe: Recipe, *, until: str = "publish", force: bool = False) -> dict[str, Parent]:
        taken = with_versions(recipe, self.home)
        provide_vectors(taken, self.home, self.ears)
        return super().run(taken, until=until, force=force)

    def published(self, name: str) -> Published:
        registry = open_registry(self.home)
        version = find_version(registry, name)
        return read_published(fetch_model(registry, version), version.reference)

    def vectors(self, recipe: Recipe) -> tuple[Path, VectorsManifest]:
        """The artifact that a recipe's features come from."""
        [config] = with_versions(recipe, self.home).preprocess.transforms[:1]
        key = str(getattr(config, "vectors"))  # noqa: B009
        store = ArtifactStore(self.home)
        found = store.load(VECTORS, key, VectorsManifest)
        assert found is not None
        return store.folder(VECTORS, key), found

    def moved(self, name: str, version: str) -> None:
        ModelRegistry(Tracker(self.home, "Default"), name).promote(version)


def features(parents: dict[str, Parent], stage: str = "preprocess") -> dict[Any, np.ndarray]:
    """Rows of features by the users' ids."""
    graph = GraphStore(parents[stage].folder, parents[stage].manifest)
    ids = IdMap(graph, DatasetStore(parents["ingest"].folder, parents["ingest"].manifest))
    names = ids.lookup(np.arange(graph.manifest.num_nodes)).to_pylist()
    return dict(zip(names, np.asarray(graph["feat"]), strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("graphs")
    write_graph(place / "all", np.arange(N))
    return place


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory, folder: Path, whole_line_in_this_process: None) -> Path:
    """A home with registered models: vectors of the whole graph, of links, and of a GNN that reads labels."""
    line = Reuse(Home.open(tmp_path_factory.mktemp("registered") / "home"))
    line.run(recipe_of(folder / "all", "walks", PRONE))
    line.run(recipe_of(folder / "all", "links", PRONE, task="link", num_negatives=50))
    line.run(recipe_of(folder / "all", "labels", SAGE))
    return line.home.root


@pytest.fixture
def line(registered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reuse:
    """A copy of that home: tests change it. Artifacts never change, so that links do."""
    in_this_process(monkeypatch)
    root = tmp_path / "home"
    for part in ("artifacts", "cache", "downloads"):
        if (registered / part).exists():
            shutil.copytree(registered / part, root / part)
    shutil.copytree(registered / "mlflow", root / "mlflow")
    for name in ("secret.key",):
        shutil.copy(registered / name, root / name)
    return Reuse(Home.open(root))


@pytest.fixture
def exact(line: Reuse, folder: Path) -> dict[str, np.ndarray]:
    """The registered vectors by the users' ids, scaled as features are."""
    line.run(recipe_of(folder / "all", "sage", SAGE, embedding("walks@1")), until="preprocess")
    place, manifest = line.vectors(recipe_of(folder / "all", "sage", SAGE, embedding("walks@1")))
    table = pq.read_table(place / manifest.node_tables[0].file)
    values = np.array(table.column("embedding").to_pylist(), np.float64)
    assert manifest.mean_square == pytest.approx(float((values**2).mean()))
    return dict(zip(table.column("id").to_pylist(), values / manifest.mean_square**0.5, strict=True))


# ---- whose vector is whose


def test_vectors_come_to_the_nodes_of_their_ids(line: Reuse, folder: Path, exact: dict[str, np.ndarray]) -> None:
    """The other graph lists its nodes in another order, lacks some, and has some that are new."""
    nodes = np.random.default_rng(5).permutation(np.arange(8, N + 4))
    write_graph(folder / "other", nodes, seed=3)
    recipe = recipe_of(folder / "other", "sage", SAGE, embedding("walks@champion"))
    made = line.run(recipe, until="preprocess")
    found = features(made)
    assert set(found) == {f"n{i}" for i in nodes}
    for i in nodes:
        wanted = exact[f"n{i}"] if i < N else np.zeros(DIM)
        np.testing.assert_allclose(found[f"n{i}"][1:], wanted, rtol=1e-5, atol=1e-6)
    assert np.mean(np.square(list(exact.values()))) == pytest.approx(1, rel=1e-5)
    assert f"vectors of walks@1: {N - 8} of {N - 4} nodes; 4 (7.1%) have none and get zeros" in line.ears.messages
    [noted] = made["preprocess"].manifest.report["vectors"]
    assert noted == {
        "model": "walks@1", "recipe": "walks", "dim": DIM, "nodes": N - 4, "with_vector": N - 8, "leak": ""
    }  # fmt: skip


def test_a_model_of_a_filtered_graph(line: Reuse, folder: Path) -> None:
    """The model's own graph was reordered by its partition, and its components were filtered."""
    lonely = np.arange(N)
    write_graph(folder / "lonely", lonely)
    edges = pc.read_csv(folder / "lonely" / "edges.csv")
    alone = compute.is_in(edges["src"], pa.array(["n7"])), compute.is_in(edges["dst"], pa.array(["n7"]))
    pc.write_csv(edges.filter(compute.invert(compute.or_(*alone))), folder / "lonely" / "edges.csv")
    line.run(recipe_of(folder / "lonely", "big", PRONE, components={"keep": "largest"}))
    found = features(
        line.run(recipe_of(folder / "all", "sage", SAGE, embedding("big@1")), until="partition"), "partition"
    )
    assert [name for name, row in found.items() if not row[1:].any()] == ["n7"]


def typed(folder: Path, name: str, model: Any, kinds: tuple[str, ...], *transforms: Any) -> Recipe:
    """Readers and books, in the order of `kinds`; books are the ones that are predicted."""
    ends = {"reader": "r", "book": "b"}
    rng = np.random.default_rng(0)
    for kind, letter in ends.items():
        ids = [f"{letter}{i}" for i in range(30)][:: 1 if kinds[0] == "reader" else -1]
        pc.write_csv(pa.table({"id": ids, "x": rng.random(30), "team": TEAMS * 10}), folder / f"{kind}.csv")
    src, dst = rng.integers(0, 30, (2, 150))
    read = pa.table({"reader": [f"r{i}" for i in src], "book": [f"b{i}" for i in dst]})
    pc.write_csv(read, folder / "read.csv")
    nodes = {kind: {"type": kind, "files": str(folder / f"{kind}.csv"), "features": ["x"]} for kind in kinds}
    if "book" in nodes:
        nodes["book"]["label"] = "team"
    edges = {"files": str(folder / "read.csv"), "source": "reader", "target": "book"}
    edges |= {"source_type": "reader", "target_type": "book", "relation": "read"}
    return build_recipe(
        {
            "name": name,
            "dataset": {"name": "tables", "nodes": list(nodes.values()), "edges": [edges], "target_type": "book"},
            "preprocess": {"transforms": list(transforms), "workers": 1},
            "model": model,
            "train": {"threads": 1, "device": "cpu", **({"loader": "full", "epochs": 2} if model is SAGE else {})},
            "tracking": {"system_metrics": False},
        }
    )


def test_nodes_of_several_types(line: Reuse, tmp_path: Path) -> None:
    """The types come in another order, and so do the nodes of each."""
    line.run(typed(tmp_path, "typed", PRONE, ("reader", "book")))
    own = line.published("typed@1")
    user = typed(tmp_path, "user", SAGE, ("book", "reader"), embedding("typed@1"))
    made = line.run(user, until="preprocess")
    _, manifest = line.vectors(user)
    assert [(one.kind, one.num_rows) for one in manifest.node_tables] == [("reader", 30), ("book", 30)]
    found = features(made)
    exact = {}
    for table in manifest.node_tables:
        rows = pq.read_table(line.vectors(user)[0] / table.file)
        vectors = np.array(rows.column("embedding").to_pylist()) / manifest.mean_square**0.5
        exact |= {f"{table.kind}:{name}": row for name, row in zip(rows.column("id").to_pylist(), vectors, strict=True)}
    assert found.keys() == exact.keys()
    for name, row in exact.items():
        np.testing.assert_allclose(found[name][-DIM:], row, rtol=1e-5, atol=1e-6)
    assert own.task == "node"


def test_too_many_nodes_without_a_vector_are_refused(line: Reuse, folder: Path) -> None:
    nodes = np.arange(N - 20, N + 40)
    write_graph(folder / "young", nodes, seed=4)
    recipe = recipe_of(folder / "young", "sage", SAGE, embedding("walks@1"))
    message = r"40 of 60 nodes have no vector of walks@1, more than most_missing=0.5 allows. Its ids are such as 'n0'"
    with pytest.raises(RecipeError, match=message):
        line.run(recipe, until="preprocess")
    assert not list((line.home.root / "work").glob("preprocess-*"))
    found = features(
        line.run(recipe_of(folder / "young", "sage", SAGE, embedding("walks@1", most_missing=0.7)), until="preprocess")
    )
    assert sum(row[1:].any() for row in found.values()) == 20


def test_numbers_of_another_graph_are_no_ids(line: Reuse) -> None:
    graph = {"name": "synthetic", "num_nodes": 80, "num_edges": 300, "num_classes": 4, "community_size": 20}
    base = {"model": PRONE, "train": {"threads": 1}, "tracking": {"system_metrics": False}}
    line.run(build_recipe({"name": "made", "dataset": {**graph, "feature_dim": 0}, **base}))
    user = {"name": "user", "model": SAGE, "preprocess": {"transforms": [embedding("made@1")], "workers": 1}}
    same = line.run(build_recipe({**user, "dataset": {**graph, "feature_dim": 4}}), until="preprocess")
    assert np.asarray(list(features(same).values())).shape == (80, 4 + DIM)
    with pytest.raises(DataError, match=r"nodes of made@1 and those of synthetic cannot be told to be the same: both"):
        line.run(build_recipe({**user, "dataset": {**graph, "seed": 2}}), until="preprocess")


def test_a_graph_of_ones_own_gets_a_model_of_its_own_name(line: Reuse, folder: Path) -> None:
    """As `docs/pages/node-vectors.md` says of `name=` and `tracking.model_name=`: the page's next recipe finds it."""
    small = ["model.dim=6", "train.threads=1", "train.device=cpu", "tracking.system_metrics=false"]
    for option, name in (("name=my-vectors", "my-vectors"), ("tracking.model_name=mine", "mine")):
        recipe = load_recipe("prone", [f"dataset={folder / 'all' / 'edges.csv'}", *small, option])
        assert recipe.name == ("my-vectors" if name == "my-vectors" else "prone")
        line.run(recipe)
        user = recipe_of(folder / "all", "user", SAGE, embedding(f"{name}@champion"))
        assert next(iter(features(line.run(user, until="preprocess")).values())).shape == (1 + DIM,)


def rewritten(line: Reuse, recipe: Recipe, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Somebody has altered the vectors, and the artifact's own record of them."""
    folder, manifest = line.vectors(recipe)
    path = folder / manifest.node_tables[0].file
    table = pq.read_table(path)
    values = change(np.array(table.column("embedding").to_pylist(), np.float32))
    flat = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
    pq.write_table(table.set_column(table.column_names.index("embedding"), "embedding", flat), path)
    (folder / "manifest.json").write_text(
        manifest.model_copy(update={"files": describe_files(folder)}).model_dump_json()
    )


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda x: np.where(np.arange(len(x))[:, None] == 3, np.nan, x), DataError, "vectors of walks@1 hold nan"),
        (lambda x: x[:, :-1].copy(), IntegrityError, "has vectors of 5, its manifest says 6"),
    ],
)
def test_vectors_that_somebody_altered_are_refused(
    line: Reuse, folder: Path, change: Any, error: type[Exception], message: str
) -> None:
    recipe = recipe_of(folder / "all", "other", SAGE, embedding("walks@1", most_missing=0.4))
    rewritten(line, recipe, lambda x: change(x).astype(np.float32))
    with pytest.raises(error, match=message):
        line.run(recipe, until="preprocess")


# ---- leaks


def link(folder: Path, *transforms: Any, seed: int = 0) -> Recipe:
    split = {"by": "ratio", "seed": seed}
    return recipe_of(folder / "all", "pairs", SAGE, *transforms, task="link", num_negatives=50, split=split)


def test_links_that_the_vectors_saw(line: Reuse, folder: Path) -> None:
    """Vectors of all edges know the pairs that are held out; those of the same split do not."""
    message = (
        r"the vectors of walks@1 \(recipe walks\) know what pairs holds out: its training saw (\d+) of the \1 pairs "
        r"that are held out. Train walks with the same split: .*; or, if that is wanted, allow_leak: true"
    )
    with pytest.raises(RecipeError, match=message):
        line.run(link(folder, embedding("walks@champion")), until="preprocess")
    made = line.run(link(folder, embedding("links@champion")), until="preprocess")
    assert made["preprocess"].manifest.report["vectors"][0]["leak"] == ""
    with pytest.raises(
        RecipeError, match=r"links@1 \(recipe links\) know what pairs holds out: its training saw \d+ of"
    ):
        line.run(link(folder, embedding("links@champion"), seed=1), until="preprocess")


def test_pairs_are_found_by_their_ids(line: Reuse, folder: Path) -> None:
    """The same edges with the nodes in another order: other numbers, the same pairs."""
    write_graph(folder / "turned", np.arange(N)[::-1].copy())
    shutil.copy(folder / "all" / "edges.csv", folder / "turned" / "edges.csv")
    turned = recipe_of(folder / "turned", "pairs", SAGE, embedding("walks@1"), task="link", num_negatives=50)
    with pytest.raises(RecipeError, match=r"its training saw (\d+) of the \1 pairs that are held out"):
        line.run(turned, until="preprocess")


def test_a_leak_that_is_wanted_is_shown(line: Reuse, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks.publish.report.page import render

    monkeypatch.setattr("tasks.publish.build.render", render)
    made = line.run(link(folder, embedding("walks@1", allow_leak=True)))
    [noted] = made["preprocess"].manifest.report["vectors"]
    assert noted["leak"].startswith("its training saw ")
    warning = f"the vectors of walks@1 leak, which allow_leak allows: {noted['leak']}"
    assert made["preprocess"].manifest.warnings == (warning,)
    page = (made["publish"].folder / "report.html").read_text()
    assert f"{noted['leak']}; the recipe allows it (allow_leak)" in page
    assert "walks@1 (recipe walks), 6 numbers; 60 of 60 nodes have one" in page
    card = (line.published("pairs@1").folder / "README.md").read_text()
    assert f"These vectors leak, as the recipe allows (allow_leak): {noted['leak']}." in card
    tracker = Tracker(line.home, "graphmill")
    tags = tracker.client.get_run(made["publish"].manifest.mlflow_run_id).data.tags
    assert (tags["graphmill.vectors"], tags["graphmill.leak"]) == ("walks@1", noted["leak"])
    assert noted["leak"] in tags["mlflow.note.content"]
    version = tracker.client.get_model_version("pairs", "1")
    assert version.tags["graphmill.leak"] == noted["leak"]
    assert noted["leak"] in version.description


def nodes(folder: Path, *transforms: Any, seed: int = 0, **changes: Any) -> Recipe:
    return recipe_of(folder / "all", "teams", SAGE, *transforms, split={"by": "ratio", "seed": seed}, **changes)


def test_labels_that_the_vectors_read(line: Reuse, folder: Path) -> None:
    """A GNN's vectors know the labels of its training nodes; vectors without labels know none."""
    message = (
        r"the vectors of labels@1 \(recipe labels\) know what teams holds out: its training read the labels of \d+ of "
        r"the \d+ nodes that are held out. Train labels with the same split of the nodes, or take one that reads"
    )
    with pytest.raises(RecipeError, match=message):
        line.run(nodes(folder, embedding("labels@champion"), seed=1), until="preprocess")
    assert line.run(nodes(folder, embedding("labels@champion")), until="preprocess")
    assert line.run(nodes(folder, embedding("walks@champion"), seed=1), until="preprocess")


def test_labels_that_chose_the_checkpoint(line: Reuse, folder: Path) -> None:
    """The training nodes are the same, and the two held-out splits have changed places."""
    made = line.run(nodes(folder), until="preprocess")
    graph = GraphStore(made["preprocess"].folder, made["preprocess"].manifest)
    swapped = {"train": "train", "valid": "test", "test": "valid"}
    part = {f"n{i}": name for name in swapped for i in np.asarray(graph[f"{swapped[name]}_idx"]).tolist()}
    table = pc.read_csv(folder / "all" / "nodes.csv")
    (folder / "swapped").mkdir(exist_ok=True)
    column = pa.array([part.get(name) for name in table["id"].to_pylist()])
    pc.write_csv(table.append_column("part", column), folder / "swapped" / "nodes.csv")
    shutil.copy(folder / "all" / "edges.csv", folder / "swapped")
    split = {"by": "column", "column": "part"}
    recipe = recipe_of(folder / "swapped", "teams", SAGE, embedding("labels@1"), split=split)
    count = graph.manifest.splits["valid"]
    with pytest.raises(RecipeError, match=rf"read the labels of {count} of the"):
        line.run(recipe, until="preprocess")


def test_vectors_of_later_data(line: Reuse, folder: Path) -> None:
    def as_of(year: int, model: str) -> Recipe:
        return recipe_of(
            folder / "all", "teams", SAGE, embedding(model), snapshot={"as_of": str(year), "unit": "years"}
        )

    with pytest.raises(
        RecipeError, match=r"saw data of all times, and here it is as of 2022. Train walks with snapshot"
    ):
        line.run(as_of(2022, "walks@1"), until="preprocess")
    line.run(recipe_of(folder / "all", "past", PRONE, snapshot={"as_of": "2022", "unit": "years"}))
    made = line.run(as_of(2022, "past@1"), until="preprocess")
    assert made["preprocess"].manifest.report["vectors"][0]["with_vector"] == made["preprocess"].manifest.num_nodes
    assert line.run(as_of(2023, "past@1"), until="preprocess"), "a quarter of the nodes is new"
    with pytest.raises(RecipeError, match=r"saw data as of 2022, and here it is as of 2021"):
        line.run(as_of(2021, "past@1"), until="preprocess")


def test_what_the_vectors_were_made_of_counts_too(line: Reuse, folder: Path) -> None:
    """A GNN of links whose features are a labels' GNN's vectors knows labels by way of them."""
    line.run(link(folder, embedding("labels@1", allow_leak=True)))
    with pytest.raises(
        RecipeError, match=r"read the labels of \d+ of .* \(by labels@1, whose vectors are features of pairs@1\)"
    ):
        line.run(nodes(folder, embedding("pairs@1"), seed=1), until="preprocess")
    assert line.run(nodes(folder, embedding("pairs@1")), until="preprocess")


# ---- which version


def test_a_moved_champion_is_another_result(line: Reuse, folder: Path) -> None:
    asked = nodes(folder, embedding("walks@champion"))
    first = line.run(asked)
    again = line.run(asked)
    assert {name: one.manifest.key for name, one in again.items()} == {n: one.manifest.key for n, one in first.items()}
    line.run(recipe_of(folder / "all", "walks", {**PRONE, "mu": 0.5}))
    line.moved("walks", "2")
    assert versions_taken(asked, with_versions(asked, line.home)) == [("walks@champion", "walks@2")]
    second = line.run(asked)
    assert second["preprocess"].manifest.key != first["preprocess"].manifest.key
    rows = [features(one)["n5"] for one in (first, second)]
    assert not np.allclose(*rows)
    # The first model goes on with the version that it was trained with.
    published = line.published("teams@1")
    [config] = published.recipe.preprocess.transforms
    assert getattr(config, "model") == "walks@1"  # noqa: B009
    shutil.rmtree(line.home.cache)
    for stage in ("preprocess", "components", "partition", VECTORS):
        shutil.rmtree(line.home.artifacts / stage)
    rebuilt = line.run(published.recipe, until="partition")
    assert rebuilt["partition"].manifest.digest == first["partition"].manifest.digest
    line.moved("walks", "1")
    assert line.run(asked, until="preprocess")["preprocess"].manifest.key == first["preprocess"].manifest.key


def test_other_data_is_served_with_the_recorded_version(line: Reuse, folder: Path) -> None:
    """Nothing is held out there: new splits that the vectors know are no leak. Nodes without a vector get zeros."""
    trained = line.run(nodes(folder, embedding("labels@1"), {"name": "standardize"}))
    line.run(recipe_of(folder / "all", "labels", {**SAGE, "hidden_dim": 5}))
    line.moved("labels", "2")
    served = np.random.default_rng(2).permutation(np.arange(4, N + 2))
    write_graph(folder / "served", served, seed=9)
    published = line.published("teams@1")
    asked = recipe_of(
        folder / "served", "teams", SAGE, embedding("labels@champion"), {"name": "standardize"}, split={"seed": 7}
    )
    taken = with_recorded_versions(asked, published.recipe)
    assert [getattr(one, "model", "") for one in taken.preprocess.transforms] == ["labels@1", ""]
    ingest = line.run(taken, until="ingest")
    work = line.home.root / "serving"
    context = StageContext("predictions", work, line.home, PickleCache(line.home), line.ears)
    graph = prepare_for(published, taken, ingest["ingest"], context)
    own, found = features(trained), features({**ingest, "partition": graph}, "partition")
    for i in served:
        if i < N:
            np.testing.assert_allclose(found[f"n{i}"], own[f"n{i}"], rtol=1e-5, atol=1e-5)
    other = recipe_of(folder / "served", "teams", SAGE, embedding("walks@champion"), {"name": "standardize"})
    assert with_recorded_versions(other, published.recipe) == other


def test_champion_and_challenger_read_their_own_versions(line: Reuse, folder: Path) -> None:
    asked = nodes(folder, embedding("walks@champion"))
    line.run(asked)
    line.run(recipe_of(folder / "all", "walks", {**PRONE, "mu": 0.5}))
    line.moved("walks", "2")
    shutil.rmtree(line.home.artifacts / VECTORS)
    gate = line.run(asked)["publish"].manifest.gate
    assert (gate.against, gate.why_not) == ("1", "")
    assert gate.champion is not None


def test_clean_keeps_the_vectors_of_needed_runs(line: Reuse, folder: Path) -> None:
    taken = with_versions(nodes(folder, embedding("walks@champion")), line.home)
    record = new_record(taken, "teams.yaml", [], [], ["preprocess"])
    record.id, record.status = "1", "completed"
    record.write(line.home)
    [config] = taken.preprocess.transforms
    assert needed_artifacts(line.home, 0.0) == {(VECTORS, getattr(config, "vectors"))}  # noqa: B009


def test_training_data_that_is_gone(line: Reuse, folder: Path, tmp_path: Path) -> None:
    """What the home has of the training serves, whatever became of the files; then the files have to be the same."""
    write_graph(tmp_path / "moving", np.arange(N))
    line.run(recipe_of(tmp_path / "moving", "moving", PRONE))
    write_graph(tmp_path / "moving", np.arange(N), seed=8)
    user = nodes(folder, embedding("moving@1"))
    shutil.copytree(line.home.artifacts, tmp_path / "kept")
    assert line.run(user, until="preprocess")
    shutil.rmtree(line.home.artifacts)
    with pytest.raises(RecipeError, match=r"model=moving@1: the data of its training has changed since.* run moving"):
        line.run(user, until="preprocess")


# ---- mistakes


def test_models_that_there_are_not(line: Reuse, folder: Path) -> None:
    for model, message in (("wolks@champion", "no registered model 'wolks'"), ("walks@7", "no version or alias '7'")):
        with pytest.raises(RecipeError, match=rf"model={model}: .*{message}"):
            with_versions(nodes(folder, embedding(model)), line.home)


def test_no_registry(home: Home, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = nodes(folder, embedding("walks@champion"))
    with pytest.raises(RecipeError, match=r"model=walks@champion: no model is registered in .*; train one"):
        with_versions(recipe, home)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setattr("tasks.publish.tracking.mlflow_registry._PAUSES_SECONDS", ())
    with pytest.raises(StageError, match=r"model=walks@champion: MLflow at http://127.0.0.1:9 did not do it"):
        with_versions(recipe, home)


def test_a_model_of_graphs_has_no_vectors_of_nodes(line: Reuse, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described = line.published("labels@1").folder / "model.json"
    values = json.loads(described.read_text())
    described.write_text(json.dumps({**values, "facts": {**values["facts"], "task": "graph"}}))
    with pytest.raises(
        RecipeError, match=r"labels@1 predicts graphs: it has no vectors of nodes; name a model of nodes"
    ):
        with_versions(nodes(folder, embedding("labels@1")), line.home)


def test_another_model_under_the_same_version(line: Reuse, folder: Path) -> None:
    """The recipe of a run, in a home whose registry began anew."""
    taken = nodes(folder, embedding("walks@1", vectors="0123456789abcdef01234567"))
    assert with_versions(taken, line.home) == taken
    with pytest.raises(RecipeError, match=r"another model of that name and version than the one that was taken \(0123"):
        provide_vectors(taken, line.home)
