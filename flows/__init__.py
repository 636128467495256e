"""Which stages run, in which order and when: the `graphmill` command and the Prefect flows."""
