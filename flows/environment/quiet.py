"""What keeps Prefect and MLflow from calling home, and from asking questions."""

from __future__ import annotations

TEMPORARY = "GRAPHMILL_TEMPORARY_SERVER"
"""Set while PREFECT_API_URL is that of a run's own server."""
QUIET = {
    "DO_NOT_TRACK": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_CLI_PROMPT": "false",
}
