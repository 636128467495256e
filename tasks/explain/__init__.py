"""Why a model scores something as it does: which edges, neighbours and features moved the score."""
