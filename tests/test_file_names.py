"""Names from outside never become paths by themselves; paths in stored records stay below their folder."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from configs.errors import IntegrityError, RecipeError, UserError
from flows.commands.outputs.graph_export import export_graph
from tasks.apply.run import OutputRequest
from tasks.storage.artifacts import ArtifactStore, write_atomic
from tasks.storage.file_names import MAX_BYTES, beside, file_name, inner_path, is_file_name, joined_name
from tasks.storage.home import Home
from tasks.storage.manifests import ArrayEntry, DatasetManifest
from tasks.storage.outcomes import EvalReport, PublishManifest, RunResult
from tests.flows.conftest import ROOT
from tests.path_joins import Join, find_in, find_joins

SAFE = ["my-graph", "a_b", "_private", "v1.2", "7", "0f8e6a3c-8a1d-4b6e-9f0a-1c2d3e4f5a6b", "m-0123abcd"]
SAFE += ["x" * MAX_BYTES]
UNSAFE = ["", ".", "..", "...", ".hidden", "-rf", "a b", "a/b", "/etc/passwd", "../../pwned", "a\0b", "a\nb", "a\n"]
UNSAFE += ["~", "é", "日本", "\udcff", "x" * (MAX_BYTES + 1), "x" * 5000 + "1", "x" * 5000 + "2", "C:\\x", "a:b"]
UNSAFE += ["*", "$(x)", "é" * 200]


@pytest.mark.parametrize("name", SAFE)
def test_a_safe_name_stays(name: str) -> None:
    assert file_name(name) == name


@pytest.mark.parametrize("name", UNSAFE)
def test_any_other_becomes_one_plain_component(name: str) -> None:
    made = file_name(name)
    assert len(made.encode()) <= MAX_BYTES
    assert Path(made).name == made
    assert made.isascii()
    assert made.isprintable()
    assert not made.startswith((".", "-", "~"))
    assert not set(made) & set("/\\ :*$()")
    assert file_name(made) != made, "no other text has this name"


def test_distinct_texts_have_distinct_names() -> None:
    texts = [*SAFE, *UNSAFE, *map(file_name, UNSAFE)]
    assert len({file_name(text) for text in texts}) == len(set(texts))
    assert file_name("a b").startswith("a_b~")


def test_several_names_make_one_and_stay_apart() -> None:
    parts = ["a", "b", "a_", "_a", "a__b", "b__c", "", "_", "c"]
    triplets = list(itertools.product(parts, repeat=3))
    assert len({joined_name(triplet) for triplet in triplets}) == len(triplets)
    assert joined_name(("author", "affiliated_with", "institution")) == "author__affiliated_with__institution"


@pytest.mark.parametrize(
    ("text", "right"), [("paper", True), ("a b", True), ("..", False), ("a/b", False), ("", False), ("é" * 200, False)]
)
def test_the_name_of_a_file_in_a_user_s_folder(text: str, right: bool) -> None:
    assert is_file_name(text) is right


@pytest.mark.parametrize("text", ["/etc/passwd", "..", "a/../../b", "../a", "", ".", "a\0"])
def test_a_path_that_leads_elsewhere_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no path below"):
        inner_path(text)
    with pytest.raises(ValidationError):
        ArrayEntry(path=text, dtype="int8", shape=(1,))


def test_a_draft_lies_beside_its_file_also_where_that_has_the_longest_name(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    beside(path, ".partial").touch()
    path.touch()
    assert beside(path, ".partial").parent == tmp_path


PLACES = [
    (DatasetManifest, "files"),
    (EvalReport, "predictions"),
    (EvalReport, "layout"),
    (PublishManifest, "report_file"),
]
PLACES += [(RunResult, name) for name in ("best_checkpoint", "last_checkpoint", "metrics_file")]


@pytest.mark.parametrize(
    ("kind", "field"), PLACES, ids=lambda value: value if isinstance(value, str) else value.__name__
)
@pytest.mark.parametrize("path", ["/etc/passwd", "../../escape", "x" * 256, "x/" * 600])
def test_a_stored_manifest_that_leads_elsewhere_is_damaged(home: Home, kind: Any, field: str, path: str) -> None:
    folder = ArtifactStore(home).folder("ingest", "key")
    folder.mkdir(parents=True)
    value = {path: {"size": 1, "sha256": ""}} if field == "files" else path
    (folder / "manifest.json").write_text(json.dumps({field: value}))
    with pytest.raises(IntegrityError, match="no path below the artifact's own folder"):
        ArtifactStore(home).load("ingest", "key", kind)


def test_keys_and_stages_of_records_stay_in_the_home(home: Home) -> None:
    store = ArtifactStore(home)
    for path in (store.folder, store.work_folder, store.lock_path):
        assert path("../../x", "../../y").resolve().is_relative_to(home.root)


@pytest.mark.parametrize("name", ["../../escape", "/etc/x", "a/b", "x" * 400])
def test_a_model_s_name_names_a_file_in_the_current_folder(name: str) -> None:
    path = Path(str(OutputRequest("predictions").placed(f"{name}-v1", "node").output))
    assert path.parent == Path.cwd()
    assert len(path.name.encode()) < 256


def test_a_place_that_nothing_can_be_written_to_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "dir.parquet").mkdir()
    (tmp_path / "file.txt").touch()
    for output, words in (
        ("dir.parquet", "is a folder; name a file"),
        ("x" * 300 + ".parquet", "the name is too long"),
        ("file.txt/y.parquet", r"file\.txt is not a folder that you may write to"),
    ):
        with pytest.raises(UserError, match=words):
            OutputRequest("predictions", str(tmp_path / output)).placed("x", "node")
    for request in (OutputRequest("embeddings", "/sys/x.npy"), OutputRequest("model", "/sys/x")):  # not even by root
        with pytest.raises(RecipeError, match=r"--output /sys/x.*/sys"):
            request.placed("x", "node")
    placed = OutputRequest("predictions", str(tmp_path / "new/y.parquet")).placed("x", "node")
    assert placed.output == str(tmp_path / "new/y.parquet")


def test_no_file_takes_the_place_of_a_pipe_or_a_device(tmp_path: Path) -> None:
    """`--output /dev/null` of a user who may write there would leave the machine without it."""
    for name in ("pipe.parquet", "pipe.safetensors", "pipe.bin"):
        os.mkfifo(tmp_path / name)
    places: list[Callable[[], Any]] = [
        lambda: OutputRequest("predictions", str(tmp_path / "pipe.parquet")).placed("x", "node"),
        lambda: OutputRequest("model", str(tmp_path / "pipe.safetensors")).placed("x", "node"),
        lambda: export_graph(
            Home.open(tmp_path / "home"), "quickstart", [], f"{tmp_path}/pipe.bin", None, verbose=False
        ),
        lambda: write_atomic(tmp_path / "pipe.bin", b"x"),
    ]
    for place in places:
        with pytest.raises(UserError, match=r"pipe\.\w+: is a pipe"):
            place()
    assert all(path.is_fifo() for path in tmp_path.glob("pipe.*"))


# Joins of paths with what is no constant and no `file_name(...)`, and why each is safe.
ALLOWED: dict[str, list[str]] = {
    "compared with the folder that it has to lie in, and not opened": [
        "tasks/readers/table_formats/delta.py: Path(folder) / unquote(name)"
    ],
    "words of our own: names of arrays, splits, files, services, options that are one of a few words": [
        "flows/services/settings.py: path / f'{service}.log'",
        "flows/cluster/cli.py: Path(f'/tmp/graphmill-{os.geteuid()}') / name",
        "models/kernel_cache.py: Path(kept) / f'{name}-{self.get_source_stamp()[:_DIGITS]}'",
        "models/kernel_cache.py: self._beside(file) / f'{file.stem}-{self.get_source_stamp()[:_DIGITS]}'",
        "models/kernel_cache.py: folder.parent.glob(f\"{folder.name[:-_DIGITS]}{'?' * _DIGITS}\")",
        "models/kernel_cache.py: f\"{place}/{(name.split()[0] if name.split() else '')}\"",
        "models/kernel_cache.py: ROOT / f'{name}.py'",
        "tasks/evaluators/ogb.py: Path(spec.submodule_search_locations[0]) / _FOLDERS[kind]",
        "tasks/ingest/writer.py: writer.folder / 'split' / split",
        "tasks/publish/build.py: context.work / file",
        "tasks/publish/map/of_run.py: folder / name",
        "tasks/publish/map/of_run.py: HERE / name",
        "tasks/ingest/synthetic/shop.py: folder / f'{name}.parquet'",
        "tasks/ingest/ogb/folder.py: raw.folder / 'raw' / raw.count_file",
        "tasks/ingest/ogb/triples.py: raw.folder / 'raw' / raw.count_file",
        "tasks/ingest/ogb/triples.py: place / f'{split}.pt'",
        "tasks/ingest/ogb/meta.py: _package() / _TABLES[kind]",
        "tasks/ingest/ogb/raw.py: folder / {'feat': f'{prefix}-feat.csv.gz', 'label': f'{prefix}-label.csv.gz'}"
        ".get(what, f'{what}.csv.gz')",
        "tasks/ingest/ogb/raw.py: self.raw / self.count_file",
        "tasks/ingest/ogb/raw.py: raw / name",
        "tasks/ingest/ogb/raw.py: folder / name",
        "tasks/ingest/ogb/splits.py: folder / f'{split}.pt'",
        "tasks/ingest/ogb/splits.py: folder / f'{split}.csv.gz'",
        "flows/commands/recipes/data_check.py: place / stage",
        "tasks/processes/memory.py: Path(f'{root}{place}')",
        "tasks/controls/pairs/pair_features.py: graph.scratch / str(number)",
        "tasks/preprocess/transforms/hops.py: self.scratch / f'{name}.npy'",
        "tasks/apply/model/files.py: folder / file",
        "tasks/apply/run.py: Path(f'{file_name(stem)}-{self.what}{endings[chosen]}')",
        "tasks/apply/run.py: work / file",
        "tasks/train/job.py: self.work / name",
        "tasks/storage/outputs/values.py: folder / f'{name}.json'",
        "tasks/storage/outputs/values.py: folder / f'{name}.npz'",
        "tasks/storage/outputs/values.py: folder / name",
        "tasks/apply/layers.py: published.folder / name",
        "tasks/inference/kept_layers.py: self.folder / name",
        "tasks/inference/kept_layers.py: self._former.layers / name",
        "tasks/ingest/database/relbench/dataset.py: folder / name",
        "tasks/storage/home_files/source_digests.py: folder / name",
        "tasks/train/ranks/launch.py: job.work / name",
    ],
    "numbers": [
        "flows/commands/installation/clean.py: Path(f'/proc/{owner}')",
        "flows/services/state.py: Path(f'/proc/{process}/stat')",
        "tasks/processes/memory.py: Path(f'/proc/{parent}/task')",
        "tasks/processes/memory.py: Path(f'/proc/{pid}/status')",
        "tasks/partition/machines.py: context.scratch / f'machine-{m}.npy'",
        "tasks/cluster/place.py: logs / f'said-{rank}.log'",
        "flows/cluster/cli.py: Path(f'/tmp/graphmill-{os.geteuid()}')",
        "tasks/train/gradients/engine.py: job.work / f'part-{ranks.rank}'",
        "tasks/leak_check/changed_tables.py: context.work / f'table-{number}'",
        "tasks/leak_check/changed_tables.py: folder / f\"{len(files):06d}.{('csv' if is_csv else 'parquet')}\"",
        "tasks/train/gradients/family.py: job.work / f'round-{number}'",
        "tasks/train/worker.py: work / LOGS / f'rank-{rank}.log'",
    ],
    "digests and random numbers": [
        "models/kernel_cache.py: kept / 'graphmill' / 'kernels' / hashlib.sha256(os.fsencode(file.parent)).hexdigest()"
        "[:_DIGITS]",
        "tasks/storage/home_files/caching.py: self.folder / name[-32:][:2]",
        "tasks/storage/home_files/caching.py: self.folder / name[-32:][:2] / f'{name}.pkl'",
        "tasks/apply/run.py: home.locks / f'output-{name}.lock'",
        "tasks/partition/coarsened.py: scratch / f'level-{uuid.uuid4().hex}.npy'",
    ],
    "an ending to a path that is there already": [
        "flows/commands/installation/clean.py: self.home.locks / f\"model-{folder.name.removeprefix('.')}.lock\"",
        "flows/web/prefect_database.py: Path(f'{self.path}-shm')",
        "flows/web/prefect_database.py: Path(f'{self.path}-wal')",
        "tasks/storage/file_names.py: path.with_name(f'.{file_name(path.name)}{ending}')",
        "tasks/publish/tracking/mlflow_registry.py: Path(f'{draft}-journal')",
        "tasks/publish/tracking/mlflow_registry.py: Path(f'{draft}-shm')",
        "tasks/publish/tracking/mlflow_registry.py: Path(f'{draft}-wal')",
    ],
    "versions of installed packages": [
        "flows/web/prefect_database.py: self.path.with_name(f\".database-{version('prefect')}\")",
        "models/dgl/adapter.py: dgl_folder() / 'graphbolt' / f'libgraphbolt_pytorch_{version}.so'",
        "models/dgl/adapter.py: folder / f'{module}.py'",
    ],
    "paths of a manifest, checked when it was read, or just made by us": [
        "tasks/storage/artifacts.py: path.parent.glob(f\"{glob.escape(beside(path, '').name)}.*-*{_DRAFT}\")",
        "flows/pipeline/run_endings.py: folder / published.maps[0]",
        "tasks/publish/map/of_run.py: evaluate.folder / evaluate.manifest.layout",
        "tasks/storage/artifacts.py: folder / name",
        "tasks/storage/artifacts.py: work / name",
        "tasks/storage/dataset_store.py: self.folder / path",
        "tasks/storage/graph_store.py: self.folder / entry.path",
        "tasks/sampling/parts/graph.py: self.folder / entry.path",
        "tasks/storage/graph_store.py: self.folder / self.entries[name].path",
        "tasks/storage/graph_store.py: store.folder / entry.path",
        "tasks/ingest/dataset_fields.py: self.folder / self.tables[table].shards[0]",
        "tasks/ingest/dataset_fields.py: self.folder / shard",
        "tasks/ingest/writer.py: self._owner.folder / path",
        "tasks/ingest/writer.py: self._owner.folder / self.folder",
        "tasks/preprocess/transforms/base.py: Path(self.folder) / entry.path",
        "tasks/preprocess/transforms/vectors.py: self.folder / name",
        "tasks/preprocess/transforms/vectors.py: self.folder / table.file",
        "tasks/preprocess/transforms/base.py: Path(self.folder) / self.entries[name].path",
    ],
    "checked before: a pattern of the option, `is_file_name`, or one of the names that a folder lists": [
        "tasks/ingest/ogb/dataset.py: root / self.config.dataset.replace('-', '_')",
        "tasks/ingest/ogb/folder.py: folder / job.target",
        "tasks/ingest/ogb/raw.py: self.raw / 'node-feat' / kind",
        "tasks/ingest/ogb/raw.py: self.raw / 'node-label' / kind",
        "tasks/ingest/ogb/raw.py: self.raw / 'relations' / '___'.join(triplet)",
        "tasks/ingest/ogb/splits.py: split / name",
        "tasks/cluster/place.py: scratch / 'home' / name",
        "tasks/ingest/database/relbench/dataset.py: folder / 'tasks' / config.predict / f'{split}.parquet'",
        "tasks/ingest/database/relbench/dataset.py: folder / 'tasks' / config.predict",
    ],
    "tables that a user's own description of a graph names: they are read, and may lie anywhere": [
        "tasks/ingest/graphstorm/recipe.py: self.path.parent / path",
    ],
    "texts for people": ["tasks/ingest/tables/files.py: path / self.table"],
    "names that the installed package ogb gives, and a table of recipes that its user wrote": [
        "tasks/ingest/ogb/download.py: unpacked / top_folder"
    ],
}


def _key(join: Join) -> str:
    return f"{join.file}: {join.text}"


def test_no_name_becomes_a_path_but_through_file_name() -> None:
    found = {_key(join): join for join in find_in(ROOT, ("flows", "tasks", "models", "configs"))}
    allowed = {entry for entries in ALLOWED.values() for entry in entries}
    new = [f"{join.file}:{join.line}: {join.text}" for key, join in found.items() if key not in allowed]
    assert not new, "wrap names in tasks.storage.file_names.file_name, or list the join with a reason: " + "; ".join(
        new
    )
    assert sorted(allowed - found.keys()) == [], "listed, and no longer in the code"


@pytest.mark.parametrize(
    "code",
    [
        "def f(folder: Path, name: str): return folder / f'{name}.json'",
        "def f(home: Home, model): return home.downloads / 'models' / (model.id or model.name)",
        "def f(path: Path, name: str): return path.with_name(name)",
        "def f(path: Path, name: str): return path.joinpath('a', name)",
        "def f(name: str): return Path(f'{name}.html')",
        "def f(path: Path, name: str): return path.with_suffix('.' + name)",
        "def f(name: str): return open(f'/tmp/{name}')",
        "def f(folder: Path, name: str): return np.load(f'{folder}/{name}.npy')",
        "def f(folder: Path, name: str): return os.path.join(folder, name)",
        "def f(folder: Path, name: str):\n    at = folder.resolve()\n    return [each / name for each in at.iterdir()]",
        "class A:\n    folder: Path\n    def f(self, columns): return self.folder / columns[0]",
        "def f(folder: Path, name: str): return folder.glob(f'{name}-*.csv')",
    ],
)
def test_the_search_sees_unsafe_joins(code: str) -> None:
    home = "class Home:\n    def locks(self) -> Path: ...\n    def downloads(self) -> Path: ..."
    assert [join.file for join in find_joins({"home.py": home, "new.py": code})] == ["new.py"]


@pytest.mark.parametrize(
    "code",
    [
        "def f(folder: Path, name: str): return folder / f'{file_name(name)}.json'",
        "def f(folder: Path): return folder / MANIFEST / 'a' / f'{3:05d}.parquet'",
        "def f(path: Path): return path.with_name(f'.{path.name}.lock')",
        "def f(total: float, count: int): return f'{total / count:.2f}'",
    ],
)
def test_the_search_lets_safe_joins_pass(code: str) -> None:
    assert find_joins({"new.py": code}) == []
