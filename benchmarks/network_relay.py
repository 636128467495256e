"""A network between namespaces of this machine, with delay, bandwidth, loss and cuts.

The kernel's own emulator (`tc netem`) is a module that many kernels come without. Here every namespace has a TUN
device, and this process carries the packets between them. Standard input says what happens: `cut 1`, `mend 1`, `delay
0.001`, `rate 125e6` (bytes a second and machine), `loss 0.01`; it ends with its input.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections import deque

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000
_MOST = 1 << 16
DEVICE = "gm"
MTU = 60_000
SUBNET = (10, 77, 0)


def address(machine: int) -> str:
    """The address of a machine."""
    return ".".join(map(str, (*SUBNET, machine + 1)))


def open_device(namespace: str) -> int:
    """Open a namespace's TUN device and configure it; returns its file."""
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if libc.setns(there, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"cannot enter network namespace {namespace}")
    try:
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    finally:
        libc.setns(home, _CLONE_NEWNET)
        os.close(home)
        os.close(there)
    return device


class Relay:
    """Carries packets from device to device; machine i has address i + 1 in the subnet."""

    def __init__(self, devices: list[int]) -> None:
        self.devices = devices
        self.delay, self.rate, self.loss = 0.0, float("inf"), 0.0
        self.cut: set[int] = set()
        self._free_at = [0.0] * len(devices)
        self._waiting: deque[tuple[float, int, bytes]] = deque()
        self._random = random.Random(0)

    def obey(self, line: str) -> None:
        word, value = line.split()
        if word in ("cut", "mend"):
            (self.cut.add if word == "cut" else self.cut.discard)(int(value))
        else:
            setattr(self, word, float(value))

    def take(self, machine: int) -> None:
        """Read what a machine sends."""
        for _ in range(64):
            try:
                packet = os.read(self.devices[machine], _MOST)
            except BlockingIOError:
                return
            target = packet[19] - 1
            lost = self.loss and self._random.random() < self.loss
            if packet[0] >> 4 != 4 or not 0 <= target < len(self.devices) or lost or self.cut & {machine, target}:
                continue
            now = time.monotonic()
            self._free_at[machine] = max(now, self._free_at[machine]) + len(packet) / self.rate
            due = self._free_at[machine] + self.delay
            if due <= now:
                self._give(target, packet)
            else:
                self._waiting.append((due, target, packet))

    def give_due(self) -> float:
        """Deliver what is due; return how long the next one waits."""
        now = time.monotonic()
        ahead = sorted(self._waiting, key=lambda item: item[0]) if self.rate != float("inf") else self._waiting
        self._waiting = deque(ahead)
        while self._waiting and self._waiting[0][0] <= now:
            _, target, packet = self._waiting.popleft()
            self._give(target, packet)
        return max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else 1.0

    def _give(self, target: int, packet: bytes) -> None:
        with contextlib.suppress(OSError):  # its queue is full, or the device is down: TCP sends again
            os.write(self.devices[target], packet)


def main(namespaces: list[str]) -> None:
    relay = Relay([open_device(name) for name in namespaces])
    for machine, name in enumerate(namespaces):
        run = ["ip", "netns", "exec", name, "ip"]
        subprocess.run([*run, "addr", "add", f"{address(machine)}/24", "dev", DEVICE], check=True)
        subprocess.run([*run, "link", "set", DEVICE, "up", "mtu", str(MTU)], check=True)
        subprocess.run([*run, "link", "set", "lo", "up"], check=True)
    print("ready", flush=True)
    poll = select.epoll()
    machines = {device: number for number, device in enumerate(relay.devices)}
    for device in machines:
        poll.register(device, select.EPOLLIN)
    poll.register(0, select.EPOLLIN | select.EPOLLHUP)
    wait = 1.0
    while True:
        for file, _ in poll.poll(wait):
            if file in machines:
                relay.take(machines[file])
            else:
                line = sys.stdin.readline()
                if not line:
                    return
                relay.obey(line)
        wait = relay.give_due()


if __name__ == "__main__":
    main(sys.argv[1:])
