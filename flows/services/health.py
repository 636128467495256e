"""Whether a server answers.

`python -m flows.services.health` tells it of the service that this container runs. It is asked every half minute: it
imports little.
"""

from __future__ import annotations

import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def answers(url: str, timeout_seconds: float = 5.0, *, by_proxy: bool = False) -> str:
    """Return "" where the address (`by_proxy`: through one) answers or demands credentials, else what is wrong."""
    try:
        opener = urllib.request.build_opener() if by_proxy else _opener
        with opener.open(url, timeout=timeout_seconds) as response:
            return "" if response.status == 200 else f"answers {response.status}"
    except urllib.error.HTTPError as error:
        return "" if error.code in (401, 403) else f"answers {error.code}"
    except (OSError, ValueError) as error:
        return f"does not answer ({getattr(error, 'reason', error)})"


def health_file() -> Path:
    """File in which a container's service leaves the address that tells its health."""
    return Path(tempfile.gettempdir()) / "graphmill-health"


def main() -> int:
    """Print what is wrong with this container's service, if anything; return the exit code."""
    try:
        url = health_file().read_text()
    except FileNotFoundError:
        print("no service has started here yet")
        return 1
    trouble = answers(url)
    if trouble:
        print(f"{url} {trouble}")
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main())
