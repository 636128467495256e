"""The services that keep graphmill running for months: Prefect server, MLflow server, worker, and who watches them."""
