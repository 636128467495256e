"""Servers of this machine are never asked for through a proxy of the environment, which reaches none of them.

Prefect's httpx, MLflow's requests and Python's urllib all read `NO_PROXY`.
"""

from __future__ import annotations

import os
import re

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SERVERS = ("PREFECT_API_URL", "MLFLOW_TRACKING_URI")


def reach_directly(*hosts: str) -> dict[str, str]:
    """Return `NO_PROXY` as the environment has it, with the loopback and other hosts of this machine; none: no proxy.

    httpx fails at an address of IPv6 in brackets or of a network, which no client of Python's heeds: these are left
    out. urllib takes `*` only where nothing else is said.
    """
    values: dict[str, str] = {}
    if not any(os.environ.get(name) for name in os.environ if name.lower().endswith("_proxy")):
        return values
    servers = re.findall(r"\b127(?:\.\d+){3}", " ".join(os.environ.get(name, "") for name in _SERVERS))
    direct = [*_LOOPBACK, *servers, *(host.strip("[]") for host in hosts)]
    for name, other in (("no_proxy", "NO_PROXY"), ("NO_PROXY", "no_proxy")):
        words = os.environ.get(name, os.environ.get(other, "")).split(",")
        said = [word.strip() for word in words if word.strip() and not re.search(r"\[|:[^/]*/\d", word)]
        values[name] = "*" if "*" in said else ",".join(dict.fromkeys([*said, *direct]))
    return values
