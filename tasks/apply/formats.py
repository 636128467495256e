"""Formats of vectors, apart from what writes them: the command line is checked without NumPy."""

ENDINGS = {
    "parquet": ".parquet",
    "npy": ".npy",
    "safetensors": ".safetensors",
    "word2vec": ".txt",
    "word2vec-binary": ".bin",
}
"""How files' names end."""
COMPLETION_ENDINGS = {"parquet": ".parquet", "csv": ".csv", "csv.gz": ".csv.gz"}
"""Of completions of triples."""
HAS_IDS_BESIDE = frozenset({"npy", "safetensors"})
