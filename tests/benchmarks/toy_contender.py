"""A contender without a graph and without torch, for tests of the protocol."""

from __future__ import annotations

from benchmarks.gnn_worker import Contender, Settings


class Toy(Contender):
    """Counts units."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if settings.options.get("broken"):
            raise ValueError("no such graph")
        self.done = 0
        self.jobs = {"count": self._count, "fail": lambda units: [][units]}

    def _count(self, units: int) -> None:
        print("this must not get between the answers")
        self.done += units

    def total(self, plus: int = 0) -> dict[str, int]:
        return {"total": self.done + plus}
