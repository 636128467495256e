"""The section `cluster`: machines of a Ray cluster, beside or instead of this one. It changes no result."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator

from configs.base import ConfigModel

_ADDRESS = re.compile(r"\[[0-9A-Fa-f:.]+\]:\d{1,5}|[A-Za-z0-9][A-Za-z0-9._-]*:\d{1,5}")


class ClusterConfig(ConfigModel):
    """Where ranks and shards run."""

    address: str | None = None
    """A Ray cluster that trains: host:port of its head; auto: RAY_ADDRESS, else the cluster that `graphmill cluster`
    began in this home, else Ray's own on this machine; null: this machine alone."""
    placement: Literal["spread", "pack"] = "spread"
    """Ranks on as many machines as there are, or on as few as have room."""
    rank_memory_gb: float | None = Field(default=None, gt=0)
    """Memory that a rank of a training asks for; null: as `graphmill plan` estimates it."""
    wait_minutes: float = Field(default=10.0, ge=0)
    """How long a run waits for room on the cluster, at its beginning and after a loss."""
    cache_gb: float = Field(default=100.0, gt=0)
    """Disk of a machine that does not see the home for what runs have fetched from there before: where it is more, what
    was not used for longest goes when a run begins."""
    require_token: bool = True
    """Whether a cluster is refused that lets in whoever reaches it."""

    @field_validator("address")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is None or value == "auto":
            return value
        if _ADDRESS.fullmatch(value) and 0 < int(value.rpartition(":")[2]) < 1 << 16:
            return value
        hint = "; ray:// is the way of a process outside of a cluster, which sees no files" if "://" in value else ""
        raise ValueError(f"{value[:80]!r} is neither auto nor host:port of a cluster's head, such as node1:6379{hint}")
