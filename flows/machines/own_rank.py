"""Which of the machines of a list this one is."""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Sequence
from pathlib import Path

from configs.errors import RecipeError
from configs.source_files import user_path
from configs.values.hosts import check_hosts


def read_hosts(text: str) -> list[str]:
    """Return the machines that `--hosts` names: `a,b,c`, or a file with a name a line (`#` begins a comment).

    Raises RecipeError: what stands there is no list of machines, or no file of that name can be read.
    """
    path = user_path(text)
    if "," not in text and ("/" in text or path.is_file()):
        hosts, source = _read_file(path), str(path)
    else:
        hosts, source = [part.strip() for part in text.split(",") if part.strip()], "--hosts"
    if not hosts:
        raise RecipeError(
            f"--hosts {text!r} names no machine; write a,b,c, machine 0 first, or a file of one name per line"
        )
    try:
        check_hosts(hosts)
    except ValueError as error:
        raise RecipeError(f"{source}: {error}") from error
    return hosts


def hosts_changes(text: str) -> list[str]:
    """Return what `--hosts` says as changes of a recipe. Raises RecipeError, as `read_hosts`."""
    names = read_hosts(text)
    return [f"train.hosts={json.dumps(names)}", f"train.num_machines={len(names)}"]


def _read_file(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"--hosts {path}: {error}; give a file with one name per line, or a,b,c") from error
    hosts = []
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if len(words) > 1:
            raise RecipeError(
                f"--hosts {path}, line {number}: {line.strip()[:80]!r} is more than a name; one machine a line, and "
                "train.num_ranks for its processes"
            )
        hosts += words
    return hosts


def own_rank(hosts: Sequence[str]) -> int:
    """Return this machine's place in the list: by its names, else by its addresses.

    Raises RecipeError: it is not in the list, or in several places; the message names both sides.
    """
    names, addresses = _own_names(), _own_addresses()
    ranks = [rank for rank, host in enumerate(hosts) if host.lower() in names]
    unknown: list[str] = []
    if not ranks:
        resolved = {rank: _addresses_of(host) for rank, host in enumerate(hosts)}
        unknown = [hosts[rank] for rank, some in resolved.items() if not some]
        ranks = [rank for rank, some in resolved.items() if any(one in addresses or one.is_loopback for one in some)]
    if len(ranks) == 1:
        return ranks[0]
    this_machine = f"this machine is {' or '.join(sorted(names))}, at {', '.join(map(str, sorted(addresses, key=str)))}"
    if ranks:
        twice = " and ".join(hosts[rank] for rank in ranks)
        raise RecipeError(
            f"train.hosts: {twice} are one machine; name it once, or say train.machine_rank=N. {this_machine}"
        )
    blind = f" ({', '.join(unknown)}: no address is known here)" if unknown else ""
    raise RecipeError(
        f"train.hosts: none of {', '.join(hosts)} is this machine{blind}; {this_machine}. Put one of these into the "
        "list, or say which machine of it this is: train.machine_rank=N, 0 for the first"
    )


def _own_names() -> set[str]:
    name = socket.gethostname()
    return {text.lower() for text in (name, name.partition(".")[0], socket.getfqdn(name)) if text} - {"localhost"}


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _own_addresses() -> set[Address]:
    """Return the addresses of this machine's interfaces but the loopback, which every machine has."""
    import psutil

    families = (socket.AF_INET, socket.AF_INET6)
    texts = [item.address for items in psutil.net_if_addrs().values() for item in items if item.family in families]
    addresses = {_address(text) for text in texts}
    return {address for address in addresses if not address.is_loopback}


def _addresses_of(host: str) -> set[Address]:
    """Return what a name resolves to; nothing where it does not."""
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {_address(str(item[4][0])) for item in addresses}


def _address(text: str) -> Address:
    return ipaddress.ip_address(text.partition("%")[0])  # `fe80::1%eth0`: without the interface
