"""Python imports this first of all where `PYTHONPATH` names its folder: see `flows/environment/prefect_files.py`."""

import contextlib

with contextlib.suppress(ModuleNotFoundError):  # a Python of another environment, started by somebody's model
    import flows

    assert flows
