"""Several services in the foreground: what a container with a worker and its recovery runs."""

from __future__ import annotations

import signal
import subprocess
import time
from types import FrameType

from flows.services.commands import Service, service_environment
from flows.services.state import end_process_group
from tasks.processes.children import ROOT

_LOOK_SECONDS = 0.5
_PAUSE_SECONDS = 10.0
_GRACE_SECONDS = 20.0


def keep_running(services: list[Service]) -> int:
    """Run services until the first one ends, or until SIGTERM or SIGINT; return the first one's exit code.

    The others are started again when they end. Output goes where this process's goes.
    """
    received: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, receive)
    running = {service.name: _start(service) for service in services}
    ended = dict.fromkeys(running, 0.0)
    first = running[services[0].name]
    while not received and first.poll() is None:
        for service in services[1:]:
            if running[service.name].poll() is None:
                ended[service.name] = time.monotonic()
            elif time.monotonic() - ended[service.name] > _PAUSE_SECONDS:
                print(f"{service.name} ended with {running[service.name].returncode}; it is started again", flush=True)
                running[service.name] = _start(service)
        time.sleep(_LOOK_SECONDS)
    for process in reversed(running.values()):
        end_process_group(process.pid, _GRACE_SECONDS)
        process.wait()
    return 0 if received else first.returncode


def _start(service: Service) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        service.command, cwd=ROOT, env=service_environment(service), stdin=subprocess.DEVNULL, start_new_session=True
    )
