"""Machine 0 of a training that never begins: it starts the others and waits for a signal, or for their end."""

from __future__ import annotations

import sys
import time

from configs.load import load_recipe
from flows.machines.ssh import machines_by_ssh
from tasks.processes import ending
from tasks.storage.home import Home


def main() -> None:
    """Arguments: the home, the recipe, overrides."""
    home, recipe = Home.open(sys.argv[1]), load_recipe(sys.argv[2], sys.argv[3:])

    def say(host: str, text: str) -> None:
        print(f"{host}: {text}", flush=True)

    try:
        with ending.prompt_ending(), machines_by_ssh(recipe, home, ["--only", "train"], say):
            time.sleep(600)
    except BaseException as error:
        print(f"ended: {ending.reason() or type(error).__name__}", flush=True)
        raise


if __name__ == "__main__":
    main()
