"""Stage 1: any source to sharded, typed Parquet under one documented schema."""
