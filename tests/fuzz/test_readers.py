"""Every reader of users' files, against whole files and broken ones. See `tests/fuzz/oracle.py` for the judge.

An hour of it: `GRAPHMILL_FUZZ_SECONDS=3600 .venv/bin/python -m pytest -m slow -s tests/fuzz`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.fuzz.budget import SECONDS, examine, examine_for
from tests.fuzz.mutations import broken
from tests.fuzz.oracle import Answer, Tally, Worker
from tests.fuzz.tables import SAMPLES, Draw, Sample, inside_out


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with Worker(tmp_path_factory.mktemp("fuzz") / "inside") as worker:
        yield worker


def ask(worker: Worker, sample: Sample, data: bytes) -> Answer:
    (worker.folder / sample.name).write_bytes(data)
    return worker.ask(f"tests.fuzz.work:{sample.work}", sample.name, path=sample.name, **sample.arguments)


@st.composite
def inputs(draw: Draw, kind: str) -> tuple[Sample, bytes]:
    """A sample and its content; of three in four that is broken."""
    sample = draw(SAMPLES[kind])
    ways = {"whole": st.just(sample.data), "bytes": broken(sample.data), "inside": inside_out(sample)}
    return sample, draw(ways[draw(st.sampled_from(["whole", "bytes", "inside", "inside"]))])


def judge(worker: Worker, sample: Sample, data: bytes) -> Answer:
    """A whole file holds what was written; what is left of a broken one may be a table, or it is refused."""
    answer = ask(worker, sample, data)
    if data != sample.data or (answer.kind == "read" and answer.content == sample.expected):
        return answer
    return Answer("failed", error=f"wrong content: {answer.error or answer.content} instead of {sample.expected}")


@pytest.mark.parametrize("kind", SAMPLES)
def test_files(worker: Worker, kind: str) -> None:
    def check(given: tuple[Sample, bytes]) -> str:
        answer = judge(worker, *given)
        assert answer.kind != "failed", answer.error
        return answer.kind

    outcomes = examine(check, inputs(kind), examples=100)
    assert len(outcomes) == 2, outcomes


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.parametrize("kind", SAMPLES)
def test_for_long(worker: Worker, tmp_path: Path, kind: str) -> None:
    """As above with other inputs each time, for half of GRAPHMILL_FUZZ_SECONDS: stored state has the rest."""
    tally = Tally()

    def check(given: tuple[Sample, bytes]) -> str:
        def keep(name: str) -> Path:
            path = tmp_path / f"{name}-{given[0].name}"
            path.write_bytes(given[1])
            return path

        return tally.add(judge(worker, *given), kind, keep)

    examine_for(check, inputs(kind), seconds=SECONDS / 2 / len(SAMPLES), examples=200)
    tally.end(kind)
