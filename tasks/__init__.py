"""The stages of the pipeline, a folder a stage, and what they share: artifacts, caching, the graph store."""

import models as models  # which says where kernels are kept, before numba is imported
