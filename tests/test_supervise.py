"""What a worker says of an error."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from configs.errors import DataError, IntegrityError, StageError
from tasks.supervise import finish_job


@dataclass
class Nothing:
    """A job."""


@pytest.mark.parametrize("kind", [DataError, IntegrityError, StageError])
def test_errors_of_graphmill_s_own_reach_who_asked_without_a_traceback(tmp_path: Path, kind: type[Exception]) -> None:
    def fail(job: Nothing) -> dict[str, Any]:
        raise kind("weights are cut")

    (tmp_path / "job.json").write_text("{}")
    assert finish_job(tmp_path / "job.json", Nothing, fail) == 0
    told = json.loads((tmp_path / "result.json").read_text())
    assert told == {"error": kind.__name__, "message": "weights are cut"}
