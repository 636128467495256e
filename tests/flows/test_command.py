"""The command's contract, end to end on a tiny generated graph: what scripts rely on."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from configs.registry import REGISTRIES
from configs.schema import STAGES
from flows.records.run_record import all_runs
from tasks.storage.home import Home
from tests.flows.conftest import ROOT, called, command, environment, graphmill, write_recipe

HEAVY = frozenset(
    {"torch", "prefect", "mlflow", "numpy", "numba", "scipy", "pandas", "pyarrow", "matplotlib", "sklearn", "dgl"}
    | {"sqlalchemy", "fastapi", "httpx", "requests"}
)
"""Libraries that take long to import."""


class Done:
    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.recipe = write_recipe(folder)
        self.process = self("run", str(self.recipe), "--json")
        assert self.process.returncode == 0, self.process.stderr
        self.outcome: dict[str, Any] = json.loads(self.process.stdout.splitlines()[-1])

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return graphmill(self.home, *arguments)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    return Done(tmp_path_factory.mktemp("tiny"))


def test_run_prints_one_json_object_and_nothing_else_on_stdout(done: Done) -> None:
    assert len(done.process.stdout.splitlines()) == 1
    outcome = done.outcome
    assert outcome["status"] == "completed"
    assert outcome["recipe"] == "tiny"
    assert set(outcome["metrics"]) == {"valid", "test"}
    assert 0 <= outcome["metrics"]["test"]["accuracy"] <= 1
    assert [stage["name"] for stage in outcome["stages"]] == list(STAGES)
    for stage in outcome["stages"]:
        assert stage["status"] == "ran"
        assert stage["seconds"] > 0
        assert stage["peak_bytes"] > 0
        folder = Path(outcome["artifacts"][stage["name"]])
        assert (folder / "manifest.json").is_file()
    assert Path(outcome["report"]).is_file()
    assert "accuracy" in done.process.stderr
    assert "Traceback" not in done.process.stderr


def test_run_is_in_prefect_and_mlflow(done: Done) -> None:
    with sqlite3.connect(done.home / "prefect" / "prefect.db") as prefect:
        (state,) = prefect.execute(
            "select state_type from flow_run where id = ?", [done.outcome["prefect_flow_run_id"]]
        ).fetchone()
        tasks = {name for (name,) in prefect.execute("select distinct name from task_run")}
        artifacts = {key for (key,) in prefect.execute("select distinct key from artifact")}
    assert state == "COMPLETED"
    assert tasks >= set(STAGES)
    assert {key for key in artifacts if not key.startswith("progress-")} == {"result"}
    with sqlite3.connect(done.home / "mlflow" / "mlflow.db") as mlflow:
        tags = dict(
            mlflow.execute("select key, value from tags where run_uuid = ?", [done.outcome["mlflow_run_id"]]).fetchall()
        )
    assert tags["prefect.flow_run_id"] == done.outcome["prefect_flow_run_id"]


def test_the_one_artifact_has_metrics_report_and_the_main_picture(done: Done) -> None:
    with sqlite3.connect(done.home / "prefect" / "prefect.db") as prefect:
        (data,) = prefect.execute("select data from artifact where key = 'result' order by created").fetchone()
    text = json.loads(data)
    assert text.startswith("| split | accuracy | f1_macro |")
    assert f"| test | {done.outcome['metrics']['test']['accuracy']:.4f} |" in text
    assert f"`{done.outcome['report']}`" in text
    assert "![train-validation](data:image/png;base64,iVBOR" in text
    assert "| publish | ran |" in text


def test_nothing_is_left_running(done: Done) -> None:
    mine = [p for p in psutil.process_iter(["cmdline", "environ"]) if str(done.home) in str(p.info["environ"])]
    assert not mine


def imports_of(done: Done, *arguments: str) -> tuple[str, set[str]]:
    process = called(command(done.home, *arguments), env={**environment(), "PYTHONPROFILEIMPORTTIME": "1"})
    assert process.returncode == 0, process.stderr
    imported = {line.rpartition("|")[2].strip() for line in process.stderr.splitlines() if "import time:" in line}
    assert "typer" in imported
    return process.stdout, imported


def test_second_run_finds_everything_and_imports_nothing_heavy(done: Done) -> None:
    said, imported = imports_of(done, "run", str(done.recipe), "--json")
    assert not imported & HEAVY
    outcome = json.loads(said)
    assert outcome["prefect_flow_run_id"] is None, "Prefect does not hear of it"
    assert outcome["run_id"] != done.outcome["run_id"]
    (record,) = (one for one in all_runs(Home(done.home)) if one.id == outcome["run_id"])
    assert record.cached
    assert (record.in_prefect, record.overrides, record.metrics) == (False, [], outcome["metrics"])
    (listed,) = (run for run in json.loads(done("runs", "--json").stdout)["runs"] if run["id"] == record.id)
    assert (listed["status"], listed["cached"]) == ("completed", True)
    assert {stage["status"] for stage in outcome["stages"]} == {"cached"}
    for name in ("metrics", "artifacts", "mlflow_run_id", "report"):
        assert outcome[name] == done.outcome[name]


def test_inspect_lists_the_stages_of_a_run(done: Done) -> None:
    for name in ("tiny", str(done.recipe), done.outcome["prefect_flow_run_id"][:8]):
        shown = done("inspect", name)
        assert shown.returncode == 0, shown.stderr
        for stage in done.outcome["stages"]:
            assert f"{stage['name']} " in shown.stdout
            assert stage["key"] in shown.stdout
    assert "valid · majority" in shown.stdout
    commands = [line.split("&&")[-1].split() for line in shown.stdout.splitlines() if line.startswith("pages")]
    assert commands[0][-2:] == ["inspect", done.outcome["prefect_flow_run_id"][:8]]


def test_no_link_leads_to_a_server_that_is_gone(done: Done) -> None:
    report = Path(done.outcome["report"]).read_text()
    assert done.outcome["prefect_flow_run_id"] in report
    with sqlite3.connect(done.home / "mlflow" / "mlflow.db") as mlflow:
        tags = dict(
            mlflow.execute("select key, value from tags where run_uuid = ?", [done.outcome["mlflow_run_id"]]).fetchall()
        )
    for text in (report, tags["mlflow.note.content"], tags.get("prefect.flow_run_url", "")):
        assert "/runs/flow-run/" not in text
        assert "/flow-runs/" not in text


def test_runs_marks_what_was_found_only(done: Done) -> None:
    assert done("run", str(done.recipe)).returncode == 0
    latest, *others = json.loads(done("runs", "--json").stdout)["runs"]
    assert latest["cached"]
    assert not others[-1]["cached"]
    lines = done("runs").stdout.splitlines()
    assert "completed, cached" in lines[1]
    assert "cached" not in lines[-1]


@pytest.mark.parametrize(
    "words",
    [
        "recipes",
        *REGISTRIES,
        "loaders neighbor",
        "show quickstart",
        "show ogbn-arxiv",
        "runs",
        "versions",
        "versions tiny --history",
        "compare tiny tiny",
        "plan {recipe}",
        "plan {recipe} train.learning_rate=0.01",
        "plan my-graph",
        "plan deepwalk",
        "plan prone",
        "clean --dry-run",
    ],
)
def test_what_only_looks_imports_nothing_heavy(done: Done, words: str) -> None:
    arguments = [word.format(recipe=done.recipe) for word in words.split()]
    _, imported = imports_of(done, *arguments)
    assert not imported & HEAVY


@pytest.mark.parametrize(
    "words",
    [
        *["up", "deploy", "start", "versions", "predict", "trust", "show", "clean", "baseline"],
        "backfill watch",
        "notify add",
    ],
)
def test_the_installed_command_knows_every_group(tmp_path: Path, words: str) -> None:
    """Most tests start commands in another way: see tests/warm_python.py."""
    script = Path(sys.executable).parent / "graphmill"
    done = called([str(script), *words.split(), "--help"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"graphmill {words}" in done.stdout


def test_plan_names_the_key_that_changed(done: Done) -> None:
    plan = done("plan", str(done.recipe), "train.learning_rate=0.01", "--json")
    assert plan.returncode == 0, plan.stderr
    steps = {step["name"]: step for step in json.loads(plan.stdout)["stages"]}
    assert [steps[name]["status"] for name in STAGES] == ["cached"] * 4 + ["runs"] * 3
    assert any("train.learning_rate 0.05 -> 0.01" in reason for reason in steps["train"]["reasons"])
    assert steps["evaluate"]["reasons"][0] == "since train runs"
    assert steps["ingest"]["bytes"] > 0
    plan = done("plan", str(done.recipe))
    assert plan.stdout.count("cached") == 7


def test_plan_of_an_unknown_home_estimates(done: Done, tmp_path: Path) -> None:
    plan = graphmill(tmp_path / "new", "plan", str(done.recipe), "--json")
    steps = {step["name"]: step for step in json.loads(plan.stdout)["stages"]}
    assert {step["status"] for step in steps.values()} == {"runs"}
    real = sum(path.stat().st_size for path in Path(done.outcome["artifacts"]["preprocess"]).glob("*.npy"))
    assert steps["preprocess"]["size_from"] == "estimate"
    assert real / 3 < steps["preprocess"]["bytes"] < real * 3


def test_inspect_shows_metrics_beside_controls_and_lists_as_tables(done: Done) -> None:
    shown = done("inspect", "tiny", "evaluate")
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    splits = [line for line in lines if line.startswith(("valid", "test"))]
    assert [line.split()[0] for line in splits if "·" not in line] == ["valid", "test"]
    assert any("·" in line for line in splits)
    assert not any(".0." in line.split()[0] for line in lines if line), "records of a list are rows of a table"


def test_inspect_shows_a_manifest_and_draws(done: Done, tmp_path: Path) -> None:
    shown = done("inspect", "tiny", "partition", "-o", str(tmp_path / "plots"), "--verify")
    assert shown.returncode == 0, shown.stderr
    assert "edge_cut" in shown.stdout
    assert "csc_indices" in shown.stdout
    assert "sha256 of all verified" in shown.stdout
    pictures = list((tmp_path / "plots").glob("*.png"))
    assert pictures
    assert all(picture.read_bytes()[:4] == b"\x89PNG" for picture in pictures)
    key = next(stage["key"] for stage in done.outcome["stages"] if stage["name"] == "train")
    for name in (key, key[:8], done.outcome["artifacts"]["train"]):
        by_key = done("inspect", name, "--json")
        assert json.loads(by_key.stdout)["key"] == key
    parent = next(line.split()[-1] for line in done("inspect", key).stdout.splitlines() if line.startswith("parent"))
    followed = json.loads(done("inspect", parent, "--json").stdout)
    assert followed["stage"] in STAGES[:4]
    assert followed["key"] == parent
    assert done("inspect", "tiny", "trian").returncode == 2
    missing = done("inspect", "tinny", "train")
    assert missing.returncode == 2
    assert "did you mean 'tiny'?" in missing.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nosuch"], "no recipe 'nosuch'"),
        (["run", "{recipe}", "train.epoch=3"], "did you mean 'epochs'?"),
        (["run", "{recipe}", "--only", "trian"], "unknown stage 'trian' (did you mean 'train'?)"),
        (["run", "{recipe}", "--only", "train", "--from", "train"], "--only and --from exclude each other"),
        (["run", "{recipe}", "--from", "train", "--force", "ingest"], "not among the stages that run"),
        (["run", "{recipe}", "--bogus"], "No such option"),
        (["run", "{recipe}", "train.loader={{name: neighbor, fanout: [5, 5, 5]}}"], "3 numbers and the model has 2"),
        (["clean", "--older-than", "soon"], "is not an age"),
        (["frob"], "No such command"),
    ],
)
def test_mistakes_exit_with_2_and_one_clear_line(done: Done, arguments: list[str], message: str) -> None:
    result = done(*(argument.format(recipe=done.recipe) for argument in arguments))
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("word", ["run", "plan", "check"])
def test_parts_that_the_ranks_cannot_share_are_refused_before_the_graph_is_prepared(tmp_path: Path, word: str) -> None:
    recipe = write_recipe(tmp_path)
    train = ("train.loader=neighbor", "train.num_ranks=3", "train.threads=1", "train.strategy=partitioned")
    said = graphmill(tmp_path / "home", word, str(recipe), *train)
    assert said.returncode == 2
    wanted = "each of the 3 ranks equally many parts and the partition has 2; set partition.num_parts=3 or a multiple"
    assert wanted in " ".join((said.stdout + said.stderr).split())
    assert not list((tmp_path / "home").glob("artifacts/*/*"))


def test_debug_shows_the_traceback(done: Done) -> None:
    result = graphmill(done.home, "--debug", "run", "nosuch")
    assert result.returncode == 2
    assert "Traceback" in result.stderr


def test_only_needs_its_parents(done: Done) -> None:
    result = done("run", str(done.recipe), "dataset.seed=5", "--only", "train", "--json")
    assert result.returncode == 2, result.stderr
    assert "ingest has not run for this recipe" in result.stderr
    outcome = json.loads(result.stdout.splitlines()[-1])
    assert outcome["status"] == "failed"
    assert "ingest has not run" in outcome["error"]
    assert outcome["prefect_flow_run_id"]


def test_force_rebuilds_and_stops_where_nothing_changed(done: Done) -> None:
    result = done("run", str(done.recipe), "--from", "components", "--force", "components", "--json")
    assert result.returncode == 0, result.stderr
    outcome = json.loads(result.stdout)
    states = {stage["name"]: stage["status"] for stage in outcome["stages"]}
    assert states == {name: "ran" if name == "components" else "cached" for name in STAGES}


def test_doctor_is_content(done: Done) -> None:
    result = done("doctor")
    assert result.returncode == 0, result.stdout
    assert "import mode" in result.stdout


def test_doctor_sees_a_key_that_others_may_read(tmp_path: Path) -> None:
    from flows.commands.installation.doctor import _home_folder

    home = Home.open(tmp_path / "home")
    home.secret_key()
    assert [level for level, *_ in _home_folder(home)] == ["ok", "ok"]
    (home.root / "secret.key").chmod(0o644)
    ((_, subject, text),) = [line for line in _home_folder(home) if line[0] == "broken"]
    assert subject == "secret.key"
    assert "mend it with: rm -r" in text
    home.root.chmod(0o777)
    assert "chmod 700" in next(iter(_home_folder(home)))[2]


PRIVATE = {
    "prefect": 0o700,
    "services": 0o700,
    "services/logs": 0o700,
    "services/settings.json": 0o600,
    "services/mlflow-auth.ini": 0o600,
    "trusted-code": 0o600,
}


@pytest.mark.parametrize("name", [*PRIVATE, "."])
@pytest.mark.parametrize("extra", [0o040, 0o002])
def test_doctor_sees_what_others_may_look_into(tmp_path: Path, name: str, extra: int) -> None:
    from flows.commands.installation.doctor import _home_folder

    home = Home.open(tmp_path / "home")
    for one, mode in PRIVATE.items():
        path = home.root / one
        if mode == 0o700:
            path.mkdir(parents=True)
        else:
            path.touch()
        path.chmod(mode)
    assert [text for level, _, text in _home_folder(home) if level != "ok"] == []
    path = home.root / name
    mode = stat.S_IMODE(path.stat().st_mode)
    path.chmod(mode | extra)
    ((level, _, bad),) = [line for line in _home_folder(home) if line[0] != "ok"]
    assert level == "broken"
    subprocess.run(bad.rpartition("mend it with: ")[2].split(), check=True)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert [text for level, _, text in _home_folder(home) if level != "ok"] == []


def test_a_number_of_lines_that_no_program_takes(tmp_path: Path) -> None:
    done = graphmill(tmp_path / "home", "logs", "worker", "-n", "1" + "0" * 23)
    assert done.returncode == 2
    assert "--lines" in done.stderr
    assert "Traceback" not in done.stderr


def test_clean_keeps_what_the_latest_run_needs(done: Done) -> None:
    extra = done.home / "artifacts" / "train" / ("0" * 24)
    extra.mkdir(parents=True)
    (extra / "old.bin").write_bytes(b"x" * 5000)
    os.utime(extra, (1, 1))
    stale = done.home / "work" / "train-dead"
    stale.mkdir(parents=True, exist_ok=True)
    (stale / "half.bin").write_bytes(b"x" * 700)
    dry = json.loads(done("clean", "--older-than", "0s", "--dry-run", "--json").stdout)
    paths = {item["path"] for item in dry["removed"]}
    assert {str(extra), str(stale)} <= paths
    assert not paths & set(done.outcome["artifacts"].values())
    assert extra.exists()
    wet = json.loads(done("clean", "--older-than", "0s", "--json").stdout)
    assert wet["bytes"] == dry["bytes"] >= 5700
    assert not extra.exists()
    assert not stale.exists()
    assert done("plan", str(done.recipe)).stdout.count("cached") == 7


def test_ctrl_c_exits_with_130_and_ends_all(done: Done) -> None:
    process = subprocess.Popen(
        command(done.home, "run", str(done.recipe), "train.epochs=100000"),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _wait_for_training(done.home, process)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert output[1].endswith("interrupted; what is finished is kept, and the same command goes on from there\n")
    record = all_runs(Home.open(done.home))[0]
    assert record.status == "cancelled"
    assert record.overrides == ["train.epochs=100000"]
    test_nothing_is_left_running(done)


def _wait_for_training(home: Path, process: subprocess.Popen[str]) -> None:
    before = set((home / "work").glob("train-*/*"))  # of earlier runs: a run needs seconds to come this far
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if set((home / "work").glob("train-*/*")) - before:
            time.sleep(1.0)
            return
        time.sleep(0.1)
    raise AssertionError(f"no training began: {process.communicate(timeout=5)}")


def test_a_failed_run_is_known_as_such_everywhere(done: Done) -> None:
    wrong = done("run", str(done.recipe), "train.learning_rate=1e30", "--json")
    assert wrong.returncode == 2
    assert "training diverged" in wrong.stderr
    failed = json.loads(wrong.stdout)
    assert [stage["name"] for stage in failed["stages"]] == list(STAGES[: STAGES.index("train")])
    with sqlite3.connect(done.home / "prefect" / "prefect.db") as prefect:
        states = dict(prefect.execute("select id, state_name from flow_run").fetchall())
        run_id = failed["prefect_flow_run_id"]
        where = "from flow_run_state where flow_run_id = ? and type = 'FAILED'"
        (message,) = prefect.execute(f"select message {where}", [run_id]).fetchone()
        errors = prefect.execute(
            "select message from log where flow_run_id = ? and level >= 40 order by timestamp", [run_id]
        ).fetchall()
        (failure,) = prefect.execute(
            "select data from artifact where key = 'failure' and flow_run_id = ?", [run_id]
        ).fetchone()
    assert states[run_id] == "Failed"
    cause = "training diverged"
    assert cause in message.splitlines()[0]
    assert errors[0][0].startswith("train: RecipeError: ")
    assert cause in errors[0][0]
    assert not any("Traceback" in text for (text,) in errors), (
        "it is told what to do; where it stood in our code is no use"
    )
    assert cause in failure
    with sqlite3.connect(done.home / "mlflow" / "mlflow.db") as mlflow:
        (status,) = mlflow.execute(
            "select r.status from runs r join tags t on t.run_uuid = r.run_uuid where t.value = ?",
            [failed["prefect_flow_run_id"]],
        ).fetchone()
    assert status == "FAILED"


@pytest.mark.slow
def test_modules_in_the_current_folder_are_not_ours(tmp_path: Path) -> None:
    """A folder of data that somebody else packed may hold any file."""
    for name in ("psutil", "sqlite3", "numpy", "pyarrow", "torch", "prefect", "flows", "multiprocessing"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')\n")
    write_recipe(tmp_path)
    script = str(Path(sys.executable).parent / "graphmill")
    for words in (["run", "tiny.yaml", "--only", "ingest,preprocess"], ["doctor"]):
        variables = {key: value for key, value in environment().items() if key != "PYTHONPATH"}
        done = called([script, "--home", str(tmp_path / "home"), *words], env=variables, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert not (tmp_path / "ran").exists(), words


@pytest.mark.slow
def test_prefect_s_own_retry_skips_what_was_completed(done: Done) -> None:
    wrong = done("run", str(done.recipe), "train.learning_rate=1e30", "--json")
    assert wrong.returncode == 2
    run_id = json.loads(wrong.stdout)["prefect_flow_run_id"]
    retry = f"-m prefect flow-run retry {run_id} --entrypoint flows.pipeline.train:train_graph"
    variables = {"PREFECT_HOME": str(done.home / "prefect"), "GRAPHMILL_HOME": str(done.home)}
    called([sys.executable, *retry.split()], env={**environment(), **variables})
    with sqlite3.connect(done.home / "prefect" / "prefect.db") as prefect:
        states = prefect.execute("select name, state_name from task_run where flow_run_id = ?", [run_id]).fetchall()
    assert not list((done.home / "prefect").glob("results/*")), "artifacts are the only results that are kept"
    assert sorted(state for name, state in states if name == "train") == ["Failed", "Failed"]


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_lead_nowhere(tmp_path: Path, closed: str) -> None:
    """As `>&-` and some supervisors leave them: the answer goes nowhere, and is no trouble."""
    script = f"{shlex.join(command(tmp_path, 'runs'))} {closed}"
    done = subprocess.run(
        ["bash", "-c", script], env=environment(), cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=60
    )
    assert (done.returncode, "Error" in done.stderr) == (0, False), done.stderr
