"""Which stages run, in which order and when: the `graphmill` command and the Prefect flows."""

from flows.environment.prefect_files import ignore_folder_settings

ignore_folder_settings()  # before anything imports Prefect
