"""Names from outside never become paths by themselves; paths in stored records stay below their folder."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
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


# What stays in its folder wherever it is joined to a path: what these functions return, fields that were checked when
# the manifest was read (`InnerPath`), constants of modules, and words and numbers of our own.
_SAFE = re.compile(
    r"_*[A-Z][A-Z_]*|file_name|table_folder|inner_path|stored_name|getpid|getuid|get_native_id|token_hex|best_checkpoint"
    r"|last_checkpoint|metrics_file|predictions|report_file|path|file|split|service|number|rank|pid|owner|process|m|kind"
)
_PLACE = re.compile(
    r".*(folder|path|place|root|ROOT|HERE|home|work|scratch|raw|draft|parent|kept|locks|downloads|logs)|Path"
)
_TAKES_PARTS = {"joinpath", "with_name", "with_stem"}


def unsafe_joins(nodes: Iterator[ast.AST]) -> Iterator[str]:
    """Yield where something joins what may come from outside to what is named like a path."""
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            found = not _is_safe(node.right) and (isinstance(node.right, ast.JoinedStr) or _is_place(node.left))
        elif isinstance(node, ast.Call):
            name = _last_name(node.func)
            made = [each for each in node.args if isinstance(each, ast.JoinedStr | ast.BinOp) and not _is_place(each)]
            takes_texts = name in {"with_suffix", "glob", "rglob", "Path"} or ast.unparse(node.func) == "open"
            parts = node.args if name in _TAKES_PARTS else made if takes_texts else []
            found = not all(map(_is_safe, parts))
        else:
            continue
        if found:
            yield ast.unparse(node)


def _last_name(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_place(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return _is_place(node.left) or isinstance(node.right, ast.JoinedStr)
    return bool(_PLACE.fullmatch(_last_name(node)))


def _is_safe(node: ast.expr) -> bool:
    if isinstance(node, ast.JoinedStr):
        parts = [part for part in node.values if isinstance(part, ast.FormattedValue)]
        return all(_is_safe(part.value) or part.format_spec is not None for part in parts)
    if isinstance(node, ast.Attribute) and node.attr in ("name", "stem"):
        return _is_place(node.value)
    return isinstance(node, ast.Constant) or bool(_SAFE.fullmatch(_last_name(node)))


# How many others there are, by file, and why they are safe.
ALLOWED = {
    "words of our own: names of arrays, files and stages; of what a folder lists, an option's pattern lets through": """
        flows/commands/recipes/data_check.py=1 flows/pipeline/run_endings.py=1 tasks/apply/layers.py=1
        tasks/apply/model/published.py=2 tasks/apply/model/states.py=5 tasks/apply/run.py=2 tasks/evaluators/ogb.py=1
        tasks/inference/kept_layers.py=2 tasks/ingest/database/relbench/dataset.py=2 tasks/ingest/ogb/dataset.py=1
        tasks/ingest/ogb/folder.py=2 tasks/ingest/ogb/raw.py=7 tasks/ingest/ogb/triples.py=1
        tasks/ingest/synthetic/shop.py=2 tasks/ingest/tables/files.py=1 tasks/ingest/writer.py=1
        tasks/ingest/written_tables.py=3
        tasks/preprocess/transforms/hops.py=1 tasks/preprocess/transforms/vectors.py=1
        tasks/processes/code_version.py=1 tasks/publish/map/of_run.py=3
        tasks/readers/table_formats/delta.py=1 tasks/storage/home_files/source_digests.py=1
        tasks/train/ranks/launch.py=1
    """,
    "numbers, digests, versions of packages, an ending to a path that is there": """
        flows/commands/installation/clean.py=1 flows/commands/outputs/layouts.py=1 flows/web/prefect_database.py=1
        tasks/apply/vector_files/formats.py=1 tasks/controls/pairs/pair_features.py=1
        tasks/leak_check/changed_tables.py=1 tasks/partition/coarsened.py=1 tasks/processes/memory.py=2
        tasks/publish/tracking/mlflow_registry.py=3 tasks/readers/duckdb_files.py=1 tasks/storage/artifacts.py=3
        tasks/storage/file_names.py=1 tasks/storage/home_files/caching.py=2 tasks/train/ranks/join.py=2
        models/dgl/adapter.py=2 models/kernel_cache.py=5
    """,
}


def test_no_name_becomes_a_path_but_through_file_name() -> None:
    allowed = {one.partition("=")[0]: int(one.partition("=")[2]) for one in " ".join(ALLOWED.values()).split()}
    for folder in ("flows", "tasks", "models", "configs"):
        for path in (ROOT / folder).rglob("*.py"):
            file, joins = path.relative_to(ROOT).as_posix(), [*unsafe_joins(ast.walk(ast.parse(path.read_text())))]
            assert len(joins) == allowed.get(file, 0), (
                f"{file}: wrap names in tasks.storage.file_names.file_name: {joins}"
            )


@pytest.mark.parametrize(
    ("code", "unsafe"),
    [
        ("folder / name", True),
        ("folder / f'{name}.json'", True),
        ("home.downloads / 'models' / (model.id or model.name)", True),
        ("path.with_name(name)", True),
        ("path.joinpath('a', name)", True),
        ("path.with_suffix('.' + name)", True),
        ("Path(f'{name}.html')", True),
        ("open(f'/tmp/{name}')", True),
        ("folder.glob(f'{name}-*.csv')", True),
        ("folder / f'{file_name(name)}.json'", False),
        ("folder / MANIFEST / 'a' / f'{3:05d}.parquet'", False),
        ("path.with_name(f'.{path.name}.lock')", False),
        ("f'{total / count:.2f}'", False),
    ],
)
def test_unsafe_joins_are_seen(code: str, unsafe: bool) -> None:
    assert bool([*unsafe_joins(ast.walk(ast.parse(code)))]) is unsafe
