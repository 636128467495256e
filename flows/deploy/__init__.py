"""Deployments: recipes that run on a schedule, from Prefect's pages, or by the hundred in a backfill."""
