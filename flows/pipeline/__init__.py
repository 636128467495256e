"""The pipeline as a Prefect flow, and what it leaves on its page and in MLflow."""
