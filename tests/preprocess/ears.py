"""A listener for tests."""

from __future__ import annotations

from tasks.stage import Listener


class Ears(Listener):
    """Keeps what the stage says."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.texts: list[tuple[float, float, str]] = []
        """Progress with texts."""

    def progress(self, stage: str, done: float, total: float, unit: str, note: str = "") -> None:
        if unit == "texts":
            self.texts.append((done, total, note))

    def message(self, stage: str, text: str) -> None:
        self.messages.append(text)

    def warning(self, stage: str, text: str) -> None:
        self.messages.append(text)
