"""`graphmill cluster start`, `join`, `status`, `stop`."""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.terminal.options import HomeOption, JsonOption, graphmill_command, open_home

if TYPE_CHECKING:
    from flows.cluster.nodes import NodeOptions
    from tasks.storage.home import Home

app = typer.Typer(help="Machines that train together: a Ray cluster.", no_args_is_help=True)

CpusOption = Annotated[int | None, typer.Option("--cpus", min=0, help="CPUs to lend; default: all.")]
GpusOption = Annotated[int | None, typer.Option("--gpus", min=0, help="GPUs to lend; default: all.")]
NodeIpOption = Annotated[
    str | None, typer.Option("--node-ip", help="Address by which the other machines reach this one.")
]
TempOption = Annotated[
    Path | None, typer.Option("--temp-dir", help="Ray's sockets and logs, on a disk of this machine.")
]
ShiftOption = Annotated[
    int, typer.Option("--shift-ports", min=0, max=58000, help="Added to every port but the head's.")
]
BlockOption = Annotated[bool, typer.Option("--block", help="Stay, and end Ray on Ctrl-C or SIGTERM.")]


def _temp_dir(asked: Path | None, place: Home) -> Path:
    """Return where Ray's files lie: each home has its own."""
    name = sha256(str(place.root).encode()).hexdigest()[:8]
    return (asked or Path(f"/tmp/graphmill-{os.geteuid()}") / name).absolute()


@app.command()
def start(
    port: Annotated[int | None, typer.Option("--port", min=1, max=65535, help="Of the head; default: 6379.")] = None,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Serve Ray's dashboard on loopback; needs ray[default].")
    ] = False,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
    node_ip: NodeIpOption = None,
    temp_dir: TempOption = None,
    shift_ports: ShiftOption = 0,
    block: BlockOption = False,
    home: HomeOption = None,
) -> None:
    """Begin a cluster: this machine is its head, and holds its token.

    Example: `graphmill cluster start --cpus 8`
    """
    from flows.cluster.nodes import NodeOptions
    from flows.terminal.console import err
    from tasks.cluster.connect import TOKEN_FILE, cluster_folder
    from tasks.cluster.settings import HEAD_PORT

    place = open_home(home)
    options = NodeOptions(None, port or HEAD_PORT, node_ip, cpus, gpus, dashboard, shift_ports)
    token = cluster_folder(place) / TOKEN_FILE

    def begun(address: str) -> list[str]:
        if address.startswith("127."):
            err().print(f"warning: other machines cannot reach {address}; --node-ip says where they reach this one")
        return [
            f"the cluster's head is {address}; its token is in {token}",
            "on each other machine, with a copy of that file:",
            f"  graphmill cluster join {address} --token-file FILE",
            "then here:",
            f"  {graphmill_command('run', 'RECIPE', '--cluster', 'auto', 'train.num_ranks=N')}",
        ]

    _begin(place, options, _temp_dir(temp_dir, place), begun, block=block)


@app.command()
def join(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The cluster's head.")],
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="A copy of the head's token; kept in this home.")
    ] = None,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
    node_ip: NodeIpOption = None,
    temp_dir: TempOption = None,
    shift_ports: ShiftOption = 0,
    block: BlockOption = False,
    home: HomeOption = None,
) -> None:
    """Have this machine join a cluster; its home may be one of its own.

    Example: `graphmill cluster join node1:6379 --token-file token`
    """
    from flows.cluster.nodes import NodeOptions, check_not_running, keep_token
    from flows.terminal.console import err
    from tasks.cluster.connect import check_reached, choose_cluster, choose_token, cluster_address, cluster_folder

    place = open_home(home)
    cluster_folder(place).mkdir(mode=0o700, exist_ok=True)
    config = choose_cluster(address)
    address = cluster_address(config, place)
    check_not_running(place)
    token = choose_token(token_file) if token_file else ""
    check_reached(address, config, place)
    if token_file:
        keep_token(place, token, address)
        if token_file.stat().st_mode & 0o077:
            said = f"warning: others may read {token_file}; remove it, this home has a copy that they may not read"
            err().print(said, markup=False, highlight=False, soft_wrap=True)
    options = NodeOptions(address, 0, node_ip, cpus, gpus, shift=shift_ports)
    joined = [f"this machine has joined the cluster of {address}"]
    _begin(place, options, _temp_dir(temp_dir, place), lambda _: joined, block=block)


@app.command()
def status(
    cluster: Annotated[str, typer.Option("--cluster", metavar="auto|HOST:PORT", help="Which one.")] = "auto",
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Show the machines of a cluster: cores, memory, GPUs, what is free of them, and whose versions differ."""
    from dataclasses import asdict

    from flows.cluster.machines import show_machines
    from flows.terminal.console import print_result
    from tasks.cluster.connect import choose_cluster
    from tasks.cluster.survey import surveyed

    machines = surveyed(choose_cluster(cluster), open_home(home))
    print_result(as_json, {"machines": [asdict(one) for one in machines]}, lambda: show_machines(machines))


@app.command()
def stop(home: HomeOption = None) -> None:
    """End this machine's Ray, that `start` or `join` began in this home; what others run goes on."""
    from flows.cluster.nodes import stop as end
    from flows.terminal.console import err, out

    ended = end(open_home(home), err().print)
    out().print("this machine's Ray has ended" if ended else "no Ray of this home runs on this machine")


def _begin(
    place: Home, options: NodeOptions, temp_dir: Path, begun: Callable[[str], list[str]], *, block: bool
) -> None:
    """Begin Ray and say what `begun` returns of the head's address; `block`: wait for a signal or for Ray's end, then
    end what is left."""
    import time

    from configs.errors import StageError
    from flows.cluster.nodes import running, signals_raise, start, stop
    from flows.terminal.console import err, out
    from tasks.cluster.settings import ANSWER_SECONDS
    from tasks.processes.ending import TerminatedError

    with signals_raise():
        address = start(place, options, temp_dir, err().print)
        try:
            for line in begun(address):
                out().print(line, markup=False, highlight=False, soft_wrap=True)
            while block and running(place):
                time.sleep(ANSWER_SECONDS / 30)
        except (TerminatedError, KeyboardInterrupt):
            if not block:
                raise
            stop(place, err().print)
            return
    if block:
        stop(place, err().print)
        raise StageError("Ray has ended by itself; see what it said in cluster/ray.log of the home")
