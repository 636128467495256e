"""Which Prefect run a publication belongs to; in no key, but for `leave_champion`: that decides what it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(frozen=True)
class RunContext:
    """The Prefect flow run that publishes; empty where a stage runs without Prefect."""

    flow_run_id: str = ""
    flow_run_url: str = ""
    name: str = ""
    """The flow run's name: recipe and snapshot, partition or time; MLflow's run is called the same."""
    parent_run: str = ""
    """MLflow run that this run stands under (a backfill's)."""
    leave_champion: bool = False
    """Whether the gate is not to choose a champion (`--no-promote`; a backfill's runs, unless that was asked for)."""
    note_champion: Callable[[str, str], None] = field(default=lambda text, becoming: None, compare=False)
    """Writes into the run's record what becomes of the champion: in words, and `NAME@VERSION` while the alias moves."""


_OUTSIDE = RunContext()
_CURRENT: ContextVar[RunContext] = ContextVar("graphmill_run_context", default=_OUTSIDE)


def current_run() -> RunContext:
    """Return the flow run that this code runs in."""
    return _CURRENT.get()


@contextmanager
def publishing_from(context: RunContext) -> Iterator[None]:
    """Say which flow run the stages called inside the block belong to."""
    token = _CURRENT.set(context)
    try:
        yield
    finally:
        _CURRENT.reset(token)
