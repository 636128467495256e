"""Backfills: one recipe over many past snapshots, or over a grid of options, each partition a flow run of its own."""
