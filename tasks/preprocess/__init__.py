"""Stage 2: Parquet to a memory-mapped graph: transforms, symmetry, CSR and CSC."""
