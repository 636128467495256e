"""Which servers a worker of another machine talks to."""

from __future__ import annotations

import pytest

from flows.services.operation import _with_named_servers


def test_named_servers_stand_for_those_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PREFECT_API_AUTH_STRING", "PREFECT_UI_URL", "GRAPHMILL_TRACKING"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_API_URL", "http://other:4200/api")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://other:5000")
    own = {"PREFECT_API_URL": "http://127.0.0.1:0/api", "GRAPHMILL_TRACKING": "home", "HOME": "/"}
    # Another machine's MLflow is no store of this home: its name must not stand in cache keys.
    assert _with_named_servers(own) == {
        "HOME": "/",
        "PREFECT_API_URL": "http://other:4200/api",
        "MLFLOW_TRACKING_URI": "http://other:5000",
    }
