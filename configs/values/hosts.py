"""The machines of a training by their names: what `train.hosts` may hold, and what follows from it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any

from configs.base import split_commas

RENDEZVOUS_PORT = 29500
"""Where torchrun's ranks meet on machine 0, unless a recipe or a scheduler says another port."""
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_LONGEST = 253


def check_hosts(hosts: Sequence[str]) -> None:
    """Raise ValueError for what is neither a host's name nor an address, and for a host that stands twice."""
    for host in hosts:
        if not _is_host(host):
            raise ValueError(
                f"{host[:80]!r} is neither a machine's name nor an address; write them as hosts=node1,node2 or "
                "hosts=10.0.0.1,10.0.0.2, without users and ports"
            )
        if sum(host.lower() == other.lower() for other in hosts) > 1:
            raise ValueError(f"{host} is listed twice; list each machine once, and set num_ranks for its processes")


def _is_host(text: str) -> bool:
    """Whether this is a name or an address; what ssh would take for an option is neither."""
    if ":" not in text:
        return len(text) <= _LONGEST and _NAME.fullmatch(text) is not None
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def rendezvous_on(host: str, port: int = RENDEZVOUS_PORT) -> str:
    """Return `host:port`, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def with_machines(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain section `train` with what its `hosts` say of num_machines and rendezvous, where it does not."""
    hosts = split_commas(section.get("hosts"))
    filled = dict(section)
    if isinstance(hosts, list | tuple) and len(hosts) > 1:
        filled.setdefault("num_machines", len(hosts))
        if not section.get("rendezvous"):
            filled["rendezvous"] = rendezvous_on(str(hosts[0]))
    return filled
