"""What graphmill has stored, read again: of the kind that was written, or IntegrityError."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from configs.errors import IntegrityError


def parse_json(text: str | bytes, source: object) -> Any:
    """Return the values in a JSON text; `source` is named in messages. Raises IntegrityError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        why = "its brackets are nested too deep" if isinstance(error, RecursionError) else str(error)
        raise IntegrityError(f"{source} is damaged: {why}") from error


def read_json(path: Path) -> Any:
    """Return the values in a JSON file. Raises IntegrityError; FileNotFoundError where there is none."""
    return parse_json(path.read_bytes(), path)


def of_kind(kind: Any, values: Any, source: object) -> Any:
    """Return plain values as a type, dataclass or model. Raises IntegrityError, naming `source`: another kind."""
    try:
        return TypeAdapter(kind).validate_python(values)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{source} is damaged: {error}") from error
