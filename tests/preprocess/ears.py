"""A listener for tests."""

from __future__ import annotations

from tasks.stage import Listener


class Ears(Listener):
    """Keeps what the stage says."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, stage: str, text: str) -> None:
        self.messages.append(text)

    def warning(self, stage: str, text: str) -> None:
        self.messages.append(text)
