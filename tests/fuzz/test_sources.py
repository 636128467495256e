"""Every data set, the proposal of a recipe and what is given to predict, against sound files and spoilt ones.

`tests/fuzz/oracle.py` is the judge, and `tests/fuzz/confined.py` notes what a reader may never do.
"""

from __future__ import annotations

import json
import platform
import shutil
import socket
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz import confined
from tests.fuzz.budget import SECONDS, examine, examine_for
from tests.fuzz.oracle import Answer, Tally, Worker
from tests.fuzz.sources import MAKERS, Source, empty, make, spoilt_source

EXAMPLES = 25
"""Of each kind, in every run."""
MEMORY = 2 << 30
"""Threads of Arrow, DuckDB and Delta Lake reserve addresses, used or not."""
PATIENCE = 600.0
"""Seconds of a data set of a few rows: DuckDB takes one of the processor's, and a busy machine gives a tenth."""


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    root = tmp_path_factory.mktemp("fuzz") / "a"
    for name in ("data", "home", "tmp"):
        (root / name).mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(root / "tmp"))
        patch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
        patch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{root}/data/catalog.db")
        patch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{root}/data")
        with Worker(root / "data", PATIENCE, MEMORY, prepare="prepare_data_sets") as worker:
            yield worker


def ask(worker: Worker, source: Source, names: Collection[str] = ()) -> Answer:
    """Write the files, have them read, and see that they are as they were."""
    shutil.rmtree(worker.folder.parent / "home", ignore_errors=True)
    empty(worker.folder)
    for name, data in source.files.items():
        path = worker.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    answer = worker.ask(f"tests.fuzz.work:{source.work}", *names, **source.arguments)
    there = {str(path.relative_to(worker.folder)) for path in worker.folder.rglob("*") if path.is_file()}
    if there != set(source.files):
        return Answer("failed", error=f"the data's folder is another: {sorted(there ^ set(source.files))}")
    return answer


def names_of(source: Source, spoilt: Source) -> tuple[str, ...]:
    """Return what a refusal of a spoilt source has to name one of: a file, a table, or an option that a way out is.

    Of a spoilt recipe whatever it says; of what is given to predict no refusal is left that names its file.
    """
    if spoilt.arguments != source.arguments:
        return ()
    return (*{Path(name).name for name in source.files}, "delta:", "iceberg:", "folder rel", "dataset")


@pytest.mark.parametrize("kind", MAKERS)
def test_spoilt_data_sets_are_refused_in_words(worker: Worker, kind: str) -> None:
    source = make(kind, worker.folder)
    whole = ask(worker, source)
    assert whole.kind == "read", whole

    def check(spoilt: Source) -> str:
        answer = ask(worker, spoilt, names_of(source, spoilt))
        assert answer.kind != "failed", answer.error
        return answer.kind

    outcomes = examine(check, spoilt_source(source), examples=EXAMPLES)
    assert source.work == "given" or len(outcomes) == 2, outcomes


def test_what_no_reader_may_do_is_noticed(worker: Worker) -> None:
    def noticed(work: str, **arguments: Any) -> str:
        answer = worker.ask(work, **arguments)
        assert answer.kind == "failed"
        return answer.error

    assert "os.mkdir ../../elsewhere" in noticed("os:mkdir", path="../../elsewhere")
    (worker.folder.parent.parent / "elsewhere").rmdir()
    assert "open x.csv" in noticed("builtins:open", file="x.csv", mode="w")
    assert "subprocess.Popen" in noticed("subprocess:call", args=["true"])
    assert "socket.getaddrinfo" in noticed("socket:getaddrinfo", host="127.0.0.1", port=80)
    if sys.platform == "linux" and platform.machine() in confined.SOCKET:
        assert noticed("socket:socket", family=socket.AF_INET) == "the process died of SIGSYS"


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.parametrize("kind", MAKERS)
def test_spoilt_data_sets_for_long(worker: Worker, tmp_path: Path, kind: str) -> None:
    """As above with other inputs each time, each kind for its share of GRAPHMILL_FUZZ_SECONDS; findings are kept."""
    source, tally = make(kind, worker.folder), Tally()

    def check(spoilt: Source) -> str:
        def keep(name: str) -> Path:
            shutil.copytree(worker.folder, tmp_path / name)
            (tmp_path / name / "ask.json").write_text(json.dumps(spoilt.arguments))
            return tmp_path / name

        return tally.add(ask(worker, spoilt, names_of(source, spoilt)), kind, keep)

    examine_for(check, spoilt_source(source), seconds=SECONDS / len(MAKERS), examples=EXAMPLES)
    tally.end(kind)
