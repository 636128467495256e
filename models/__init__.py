"""Everything with a gradient or a kernel. Knows nothing of Prefect, MLflow or file formats."""
