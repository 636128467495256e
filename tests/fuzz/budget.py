"""How long a fuzz test goes on: some examples in every run, and so many seconds where somebody asks for it."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SECONDS = float(os.environ.get("GRAPHMILL_FUZZ_SECONDS", "3600"))
"""Of a test that goes on for long."""
_EXAMPLES_A_ROUND = 2000


def examine_for(
    check: Callable[[Any], str], inputs: st.SearchStrategy[Any], *, seconds: float, examples: int = _EXAMPLES_A_ROUND
) -> Counter[str]:
    """Give `check` new inputs until the time is over, which is looked at after so many of them."""
    outcomes: Counter[str] = Counter()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        outcomes += examine(check, inputs, examples=examples, derandomize=False)
    return outcomes


def examine(
    check: Callable[[Any], str], inputs: st.SearchStrategy[Any], *, examples: int, derandomize: bool = True
) -> Counter[str]:
    """Give `check` that many inputs; it names what came of each one, and fails where that must not happen.

    The same inputs in every run unless not `derandomize`, so that a finding is there for everybody.
    """
    outcomes: Counter[str] = Counter()

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=derandomize,
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs)
    def one(value: Any) -> None:
        outcomes[check(value)] += 1

    one()
    return outcomes
