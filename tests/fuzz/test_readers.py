"""Every reader of users' files, against whole files and broken ones. See `tests/fuzz/oracle.py` for the judge.

An hour of it: `GRAPHMILL_FUZZ_SECONDS=3600 .venv/bin/python -m pytest -m slow -s tests/fuzz`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.budget import SECONDS
from tests.fuzz.oracle import Answer, Tally, Worker
from tests.fuzz.tables import SAMPLES, Sample, broken, inside_out

_LESS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with Worker(tmp_path_factory.mktemp("fuzz") / "inside") as worker:
        yield worker


def ask(worker: Worker, sample: Sample, data: bytes) -> Answer:
    (worker.folder / sample.name).write_bytes(data)
    return worker.ask(f"tests.fuzz.work:{sample.work}", sample.name, path=sample.name, **sample.arguments)


def check_whole(worker: Worker, sample: Sample) -> Answer:
    """A whole file is read, and holds what was written."""
    answer = ask(worker, sample, sample.data)
    if answer.kind == "read" and answer.content == sample.expected:
        return answer
    return Answer("failed", error=f"wrong content: {answer.error or answer.content} instead of {sample.expected}")


def check_broken(worker: Worker, sample: Sample, data: st.DataObject) -> Answer:
    """A broken file is read (what is left of it may be a table) or refused."""
    way = data.draw(st.sampled_from([broken(sample.data), inside_out(sample)]))
    return ask(worker, sample, data.draw(way))


CHECKS: dict[str, Callable[[Worker, st.DataObject, Sample], Answer]] = {
    "whole": lambda worker, data, sample: check_whole(worker, sample),
    "broken": lambda worker, data, sample: check_broken(worker, sample, data),
}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("check", CHECKS)
def test_files(worker: Worker, name: str, check: str) -> None:
    @settings(max_examples=25 if check == "whole" else 75, deadline=None, derandomize=True, suppress_health_check=_LESS,
              database=None)  # fmt: skip
    @given(data=st.data(), sample=SAMPLES[name])
    def run(data: st.DataObject, sample: Sample) -> None:
        answer = CHECKS[check](worker, data, sample)
        assert answer.kind != "failed", answer.error

    run()


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 600)
def test_for_long(worker: Worker, tmp_path: Path) -> None:
    """As above with other inputs each time, for half of GRAPHMILL_FUZZ_SECONDS: stored state has the rest."""
    tally, until, turn = Tally(), time.monotonic() + SECONDS / 2, int(time.time())

    def run(name: str, check: str, number: int) -> None:
        @seed(number)
        @settings(max_examples=200, deadline=None, suppress_health_check=_LESS, database=None,
                  phases=[Phase.generate])  # fmt: skip
        @given(data=st.data(), sample=SAMPLES[name])
        def some(data: st.DataObject, sample: Sample) -> None:
            before = len(tally.findings)
            tally.add(CHECKS[check](worker, data, sample), f"{name}, {check}")
            if len(tally.findings) > before:
                kept = tmp_path / f"finding-{before}-{sample.name}"
                kept.write_bytes((worker.folder / sample.name).read_bytes())
                print(f"{[*tally.findings.values()][-1]}\n  kept as {kept}", flush=True)

        some()

    while time.monotonic() < until:
        for name in SAMPLES:
            for check in CHECKS:
                turn += 1
                if time.monotonic() < until:
                    run(name, check, turn)
    print(tally)
    assert not tally.findings, str(tally)
