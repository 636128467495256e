"""How a process that runs stages ends before its time: by SIGTERM, Ctrl-C, a closed terminal, or `give_up`.

The main thread unwinds by the exception that a signal's handler raises. Three things may keep it from that: it is
inside of a library's long call, it waits for a child or a server, or Python drops the exception, as it does in a
destructor. So a thread hears of the signal too, through the pipe of `signal.set_wakeup_fd`:

- at once it kills the process's children: what they write is whole or absent, and nobody has to wait for them;
- where the main thread has not begun to unwind a second later it raises the signal again;
- after `GRACE_SECONDS` it calls what `closing` has registered and is still open, and ends the process.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from configs.errors import UserError
from tasks.processes.memory import descendants

GRACE_SECONDS = 3.0
"""For the main thread to unwind by itself."""
_CLOSE_SECONDS = 1.5
"""For what it left open."""
_AGAIN_SECONDS = 1.0
_NOTICE_SECONDS = 0.05
"""For the watching thread to hear of a signal that the main thread has felt."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class TerminatedError(BaseException):
    """SIGTERM or SIGHUP arrived, or the run was given up."""


class _State:
    """Of this process: it has one end."""

    def __init__(self) -> None:
        self.watching = False
        self.signalled_at: float | None = None
        """When the first signal came."""
        self.number = int(signal.SIGTERM)
        self.unwinding = False
        self.reason: Exception | None = None
        self.spared: set[int] = set()
        self.closers: list[Callable[[], None]] = []


_state = _State()


def reason() -> Exception | None:
    """Return why the process gave up (`give_up`); None where a signal came from outside."""
    return _state.reason


def is_ending() -> bool:
    """Whether a signal to end has come: whatever waits has a second or two left."""
    return _state.signalled_at is not None


def give_up(error: Exception) -> None:
    """End the process from any thread as SIGTERM would, for a reason of its own."""
    _state.reason = error
    os.kill(os.getpid(), signal.SIGTERM)


def unwinding() -> None:
    """Say in the main thread that it is on its way out: further signals no longer disturb it."""
    _state.unwinding = True
    if _state.watching and threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def spare(pid: int) -> None:
    """Leave a child alive that is needed for the last words."""
    _state.spared.add(pid)


@contextlib.contextmanager
def closing(close: Callable[[], None]) -> Iterator[None]:
    """Have `close` called where the process has to end without leaving the block; it must be quick."""
    context = contextvars.copy_context()

    def call() -> None:
        context.run(close)

    _state.closers.append(call)
    try:
        yield
    finally:
        _state.closers.remove(call)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Let a signal to end be felt behind the block, if that takes less than the grace; in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


@contextlib.contextmanager
def undisguised() -> Iterator[None]:
    """Raise the interrupt itself where a library (pydantic, of whatever ends a serializer) made an error of it."""
    try:
        yield
    except Exception as error:
        if _state.watching:
            time.sleep(_NOTICE_SECONDS)
        if not is_ending():
            raise
        raise (KeyboardInterrupt if _state.number == signal.SIGINT else TerminatedError) from error


@contextlib.contextmanager
def prompt_ending() -> Iterator[None]:
    """Have the process end within five seconds of a signal that comes during the block (in the main thread only).

    Where the block is entered a second time, or in another thread, it does nothing.
    """
    if _state.watching or threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    terminals = [number for number in (0, 1, 2) if os.isatty(number)]

    def end(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            nowhere = os.open(os.devnull, os.O_RDWR)  # each word to a terminal that is gone would raise an error
            for terminal in terminals:
                os.dup2(nowhere, terminal)
        if not _state.unwinding:
            raise TerminatedError

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    # Python's own handler of Ctrl-C stays, and Prefect's of SIGTERM where this is a flow; `nohup` has SIGHUP ignored.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if before[number] is signal.SIG_DFL:
            signal.signal(number, end)
    pipe_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _state.watching = True
    threading.Thread(target=_watch, args=(reader,), daemon=True, name="ending").start()
    try:
        with undisguised():
            yield
    except BaseException as error:
        if not isinstance(error, Exception):
            kill_children()  # the thread may not have come to it yet
        raise
    finally:
        signal.set_wakeup_fd(pipe_before)
        os.close(writer)
        _state.watching = False
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(reader: int) -> None:
    """Wait for the first signal; then see to it that the process ends."""
    while content := os.read(reader, 1):
        if content[0] in _SIGNALS:
            break
    else:  # the block was left
        os.close(reader)
        return
    _state.signalled_at, _state.number = time.monotonic(), content[0]
    kill_children()
    time.sleep(max(0.0, _seconds_left(_AGAIN_SECONDS)))
    if not _state.unwinding and _state.watching:
        os.kill(os.getpid(), _state.number)
    time.sleep(max(0.0, _seconds_left(GRACE_SECONDS)))
    _end_now()


def _seconds_left(seconds: float) -> float:
    assert _state.signalled_at is not None
    return _state.signalled_at + seconds - time.monotonic()


def _close_quietly(close: Callable[[], None]) -> None:
    with contextlib.suppress(BaseException):
        close()


def kill_children() -> None:
    """Kill all processes below this one but those that are spared."""
    spared = {process for kept in _state.spared for process in (kept, *descendants(kept))}
    for process in descendants():
        if process not in spared:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def _end_now() -> None:
    kill_children()
    # Side by side: a server that does not answer must not keep the others waiting.
    threads = [threading.Thread(target=_close_quietly, args=(close,), daemon=True) for close in _state.closers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, _seconds_left(GRACE_SECONDS + _CLOSE_SECONDS)))
    with contextlib.suppress(OSError):
        os.write(2, f"{last_words()}\n".encode())
    code = 130 if _state.number == signal.SIGINT else 1
    if _state.reason:  # what the command's own end would give: also of a mistake that another machine has found
        code = 2 if isinstance(_state.reason, UserError) else 1
    os._exit(code)


def last_words() -> str:
    """Say why the process ends, and that nothing is lost by it."""
    if _state.reason:
        return f"error: {_state.reason}"
    word = "interrupted" if _state.number == signal.SIGINT else "terminated"
    return f"{word}; what is finished is kept, and the same command goes on from there"
