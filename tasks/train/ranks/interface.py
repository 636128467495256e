"""By which network interface a machine's ranks talk to those of the others."""

from __future__ import annotations

import socket

import psutil

from configs.training import TrainBase

LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""Variables by which ranks of one machine cannot be reached from another, and need no name that resolves."""
_ANY_PORT = 9
_LOOPBACK = ("127.", "::1")


def own_interface(train: TrainBase) -> str | None:
    """Return the network interface by which machine 0 is reached, and by which machine 0 itself is.

    Gloo would take the one of the address that the host's name resolves to, which on many machines is the loopback or
    nothing at all. None: one machine, or no way to machine 0 is known.
    """
    if train.num_machines == 1 or train.rendezvous is None:
        return None
    address = _own_address(train.rendezvous.rpartition(":")[0].strip("[]"))
    if not train.machine_rank and address.startswith(_LOOPBACK):
        # Where /etc/hosts has `127.0.1.1 node1`, as Debian writes it, node1's own name leads it nowhere else.
        address = next(filter(None, map(_own_address, train.hosts[1:])), address)
    for interface, addresses in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in addresses):
            return interface
    return None


def _own_address(host: str) -> str:
    """Return this machine's address on the way to a host; empty: no way is known."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(place)  # sends nothing: it only asks for the way
            return str(probe.getsockname()[0])
    except OSError:
        return ""
