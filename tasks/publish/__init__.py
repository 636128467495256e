"""Stage 7: MLflow run, registered model, Prefect artifacts and the report."""
