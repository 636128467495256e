"""What a job is: the recipe schema, the component registries and the shipped recipes (one YAML a job)."""
