"""What an encoder of texts is: a class with a nested `Config`, registered in TEXTS."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import pyarrow as pa

from configs.base import ComponentConfig, cache_view
from configs.registry import TEXTS
from tasks.arrays import Array
from tasks.preprocess.shards import digest

State = dict[str, Any]
"""Arrays and plain values: what an encoder learned."""
FILES = "files"
"""Digest of the model's files in a state, where there are such files."""


class TextEncoder(ABC):
    """Makes a vector of each text."""

    version: ClassVar[int] = 1
    """To be raised when vectors change: texts are then encoded again."""
    is_slow: ClassVar[bool] = False
    """Whether a check of data does without it."""
    texts_a_job: ClassVar[int] = 8192
    """Texts that are encoded, and kept, at a time: some seconds of one core, or half a minute."""

    def __init__(self, config: ComponentConfig) -> None:
        self.config: Any = config

    @property
    def rows(self) -> int:
        """Training texts that it learns from, at most; 0: it learns nothing."""
        return 0

    @property
    def in_process(self) -> bool:
        """Whether all jobs run in one process, which has the device."""
        return False

    @abstractmethod
    def learn(self, texts: pa.Array) -> State:
        """Learn from training texts, large_string (n,), none where `rows` is 0; the state has at least `dim`."""

    @abstractmethod
    def encode(self, texts: pa.Array, state: State) -> Array:
        """Return the vectors, float (n, dim), of texts, large_string (n,), none of which is empty."""

    def key(self, state: State) -> str:
        """Name vectors by all that decides them but the text."""
        return digest(cache_view(self.config), self.version, state)


def make_encoder(config: ComponentConfig) -> TextEncoder:
    """Return the encoder of these options."""
    encoder: TextEncoder = TEXTS.create(config)
    return encoder
