"""Whether a server answers."""

from __future__ import annotations

import urllib.error
import urllib.request

_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def answers(url: str, timeout_seconds: float = 5.0) -> str:
    """Return an empty string where the address answers (a demand for credentials is an answer), else what is wrong."""
    try:
        with _opener.open(url, timeout=timeout_seconds) as response:
            return "" if response.status == 200 else f"answers {response.status}"
    except urllib.error.HTTPError as error:
        return "" if error.code in (401, 403) else f"answers {error.code}"
    except (OSError, ValueError) as error:
        return f"does not answer ({getattr(error, 'reason', error)})"
