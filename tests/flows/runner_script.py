"""Maps over numbers with a pool of processes, in a process whose Prefect knows nothing but a home of its own."""

from __future__ import annotations

import json
import os
import sys

from configs.errors import DataError


def where(number: int) -> tuple[int, int]:
    return number, os.getpid()


def refuse_three(number: int) -> int:
    if number == 3:
        raise DataError("is wrong", path="shard", row=number)
    return number


def main() -> None:
    from flows.services.environment import prepare_environment
    from flows.web.temporary_server import embedded_server
    from tasks.storage.home import Home

    home = Home.open(sys.argv[1])
    prepare_environment(home)
    with embedded_server(home) as server:
        import psutil

        from flows.commands.recipes.run import _flush_prefect
        from flows.pipeline.shards import PoolMap

        server.wait()
        mapped = PoolMap(2, start_seconds=0)
        results = list(mapped(where, list(range(9))))
        left = [child for child in psutil.Process().children() if "spawn_main" in " ".join(child.cmdline())]
        try:
            list(mapped(refuse_three, list(range(6))))
            error = ""
        except DataError as found:
            error = str(found)
        _flush_prefect()
    print(json.dumps({"results": results, "here": os.getpid(), "left": len(left), "error": error}))


if __name__ == "__main__":
    main()
