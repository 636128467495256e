"""What some tests need beside what `make setup` brings; `make developer` brings it.

Without it they are skipped, and the end of a run says so; where GRAPHMILL_LACK_NOTHING=1 is set, as in CI, it fails.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

_LACKS, _BRINGS = "lacks ", "make developer"
PACKAGES = Path(__file__).resolve().parent.parent / "build" / "packages"
"""Python packages that are better not in the environment: Prefect imports one of them into every process."""


def reason(program: str, brings: str = _BRINGS) -> str:
    """Say what a test lacks, and the command that brings it."""
    return f"{_LACKS}{program}: {brings}"


def needs(program: str, present: object, brings: str = _BRINGS) -> pytest.MarkDecorator:
    """Mark tests that need a program; `present`: whether it is here."""
    return pytest.mark.skipif(not present, reason=reason(program, brings))


def skip_without(program: str, present: object) -> None:
    """Skip the test that calls this where a program is not here."""
    if not present:
        pytest.skip(reason(program))


def import_package(monkeypatch: pytest.MonkeyPatch, package: str, module: str) -> Any:
    """Import a module of the environment or of PACKAGES; skip the test where neither has it."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(PACKAGES)])
    return pytest.importorskip(module, reason=reason(package), exc_type=ModuleNotFoundError)


def count_skips(reports: Iterable[pytest.TestReport]) -> Counter[str]:
    texts = (report.longrepr[2] if isinstance(report.longrepr, tuple) else "" for report in reports)
    return Counter(text.removeprefix("Skipped: ") for text in texts)


def is_complete(skips: Counter[str]) -> bool:
    """Whether nothing was lacking, or nobody asked for all."""
    return os.environ.get("GRAPHMILL_LACK_NOTHING") != "1" or not any(text.startswith(_LACKS) for text in skips)
