"""Which stages run, in which order and when: the `graphmill` command and the Prefect flows."""

import os

from flows.environment.prefect_files import ignore_folder_settings
from flows.environment.proxies import reach_directly

ignore_folder_settings()  # before anything imports Prefect
os.environ.update(reach_directly())  # for this process, and those that it starts
