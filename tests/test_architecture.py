"""The house rules that a reader relies on: packages are ours, help is fast, arrows point one way."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

from tests.flows.conftest import ROOT, environment

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: list[str] = PROJECT["tool"]["setuptools"]["packages"]
HEAVY = ("torch", "prefect", "mlflow", "numpy", "pandas", "pyarrow", "numba", "dgl", "scipy")


@pytest.mark.parametrize("name", PACKAGES)
def test_generic_package_names_are_ours(name: str) -> None:
    file = importlib.import_module(name).__file__
    assert file is not None
    assert Path(file).resolve().is_relative_to(ROOT)


def test_every_package_is_installed() -> None:
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for top in ("configs", "flows", "models", "tasks")
        for path in (ROOT / top).rglob("__init__.py")
    }
    assert found == set(PACKAGES)


def _modules_after(code: str) -> set[str]:
    script = f"""
import json, sys
sys.argv = ["graphmill", "--help"]
try:
{code}
except SystemExit as done:
    assert not done.code, done.code
print("\\n" + json.dumps(sorted(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment(), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


# What is not imported meanwhile: the time that help, a recipe's options and a stage's start take is that of imports.
LIGHT = {
    "help": ("from flows.cli import main; main()", HEAVY),
    # What computes is a process of its own: imported here as well it would double the time of a small prediction.
    "use a model": (
        "import flows.commands.outputs.cli, flows.apply.model_use, tasks.apply.run",
        ("torch", "prefect", "mlflow", "pandas", "numba", "dgl", "scipy"),
    ),
    "read a recipe": ("import configs.load", ("torch", "prefect", "mlflow", "dgl")),
    "run": ("import flows.commands.recipes.run", ("torch", "prefect", "mlflow", "dgl", "ray")),
    "a stage": ("import tasks.stage", ("torch", "prefect", "mlflow", "dgl")),
    "options of triples": (
        "from configs.registry import DATASETS\n"
        "    for options in ({'name': 'triples', 'path': 'x'}, {'name': 'synthetic_triples'}):\n"
        "        DATASETS.create(DATASETS.config(options))",
        HEAVY,
    ),
    "start workers": (
        "import tasks.kinds.measurable, tasks.train.ranks.launch, tasks.train.stage\n"
        "    from configs.registry import STRATEGIES\n"
        "    from tasks.train.loaders.config_base import resolve_loader\n"
        "    for name in STRATEGIES.names(): STRATEGIES.get(name)",
        ("torch", "numba", "ray"),
    ),
}


@pytest.mark.parametrize("what", LIGHT)
def test_what_has_to_be_quick_imports_nothing_heavy(what: str) -> None:
    code, heavy = LIGHT[what]
    assert not _modules_after(f"    {code}").intersection(heavy)


def test_a_worker_leaves_pandas_out() -> None:
    script = "    from tasks.processes.imports import leave_pandas_out; leave_pandas_out()\n"
    script += "    import pyarrow as pa; pa.array([1, None]), pa.array(pa.array([1]).to_numpy())"
    assert "pyarrow" in (loaded := _modules_after(script))
    assert "pandas" not in loaded


def test_no_files_import_each_other() -> None:
    graph = grimp.build_graph("configs", "models", "tasks", "flows", cache_dir=None)
    list(TopologicalSorter({m: graph.find_modules_directly_imported_by(m) for m in graph.modules}).static_order())


def test_inside_a_room_imports_run_one_way() -> None:
    """Between its folders and its loose files."""
    graph = grimp.build_graph("configs", "models", "tasks", "flows", cache_dir=None)
    rooms = [room for room in graph.find_children("tasks") if graph.find_children(room)]
    for room in ("configs", "flows", "models", *rooms):
        uses: dict[str, set[str]] = {}
        for module in graph.find_descendants(room):
            part = module.removeprefix(f"{room}.").split(".")[0]
            inside = [one for one in graph.find_modules_directly_imported_by(module) if one.startswith(f"{room}.")]
            uses.setdefault(part, set()).update({one.removeprefix(f"{room}.").split(".")[0] for one in inside} - {part})
        list(TopologicalSorter(uses).static_order())


def test_names_of_classes_stand_once_and_folders_are_small() -> None:
    classes: dict[str, str] = {}
    for folder in (ROOT / name.replace(".", "/") for name in PACKAGES):
        files = sorted(folder.glob("*.py"))
        assert len(files) <= 15, f"{folder} has {len(files)} files: split it"
        for file in files:
            for name in re.findall(r"^class (\w+)", file.read_text(), re.MULTILINE):
                assert name not in classes, f"class {name} of {file} has the name of one in {classes[name]}"
                classes[name] = str(file)


def test_help_loads_little() -> None:
    """Of what it takes the time is imports (`benchmarks.overhead` measures it), and these can be counted."""
    command = [sys.executable, "-X", "importtime", "-m", "flows.cli", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=ROOT)
    assert done.returncode == 0
    loaded = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert len(loaded) < 450


def test_prefect_and_mlflow_stay_in_their_rooms() -> None:
    """What import-linter cannot say: which files of a package may import a library."""
    for path in (*ROOT.glob("tasks/**/*.py"), *ROOT.glob("models/**/*.py"), *ROOT.glob("configs/**/*.py")):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text()
        imports = [line.strip() for line in text.splitlines() if line.strip().startswith(("import ", "from "))]
        for library, allowed in (
            ("prefect", name == "tasks/prefect_tasks.py"),
            ("mlflow", name.startswith("tasks/publish/")),
            ("dgl", name == "models/dgl/adapter.py"),
            ("ray", name.startswith("tasks/cluster/")),
        ):
            users = [line for line in imports if line.split()[1].split(".")[0] == library]
            assert allowed or not users, f"{name}: {users}"


def test_prefect_tasks_are_thin() -> None:
    assert len((ROOT / "tasks/prefect_tasks.py").read_text().splitlines()) <= 110


# Ways by which data can decide what code runs, and the files that may use them: each says there why it is safe.
CODE_FROM_DATA = {
    r"(?<![.\w])(exec|eval)\(": {"configs/reading/own_files.py"},  # checked by configs/trust.py
    r"\bimportlib\.import_module\(|\b__import__\(": {
        "configs/registry.py",  # the registry's own package
        "tasks/calls.py",  # a stage, by name
        "tasks/stage.py",  # its work, by the same
        "tasks/kinds/of.py",  # a module of the package, by name
        "tasks/train/families.py",  # one of seven that stand in the file
        "tasks/publish/report/page.py",  # the files of its own folder
        "tasks/supervise.py",  # a module that its parent names on the command line
    },
    r"spec_from_file_location|\brunpy\b": {"tasks/evaluators/ogb.py", "tasks/ingest/ogb/meta.py"},  # in the package ogb
    r"\b(cloud)?pickle\.loads?\(|pickle\.Unpickler\(": {
        "tasks/storage/home_files/caching.py",  # signed
        "tasks/cluster/shards.py",  # what its parent has pickled
    },
    r"class _?\w*\(pickle\.Unpickler\)": {"tasks/readers/arrays/torch_files.py"},  # a list of harmless names
    r"(broadcast|gather|scatter|send|recv)_object(_list)?\(|[\"']--standalone": set(),  # pickles of other processes
    r"allow_pickle=True|yaml\.(unsafe_|full_)?load\(|joblib|mlflow\.pyfunc|weights_only=False|from_string\(": set(),
}


@pytest.mark.parametrize("pattern", CODE_FROM_DATA)
def test_data_decides_what_runs_nowhere_else(pattern: str) -> None:
    found = set()
    for top in ("configs", "flows", "models", "tasks"):
        for path in (ROOT / top).rglob("*.py"):
            lines = [line for line in path.read_text().splitlines() if not line.strip().startswith(("#", '"', "`"))]
            if any(re.search(pattern, line) for line in lines):
                found.add(path.relative_to(ROOT).as_posix())
    assert found == CODE_FROM_DATA[pattern]


def test_torch_and_numpy_read_no_code() -> None:
    for top in ("configs", "flows", "models", "tasks"):
        for path in (ROOT / top).rglob("*.py"):
            for call in re.findall(r"\btorch\.load\([^)]*\)", path.read_text()):
                assert "weights_only=True" in call or call == "torch.load(weights_only=True)", f"{path}: {call}"
            assert not re.search(r"allow_pickle=(?!False)", path.read_text()), path  # numpy's default is False
