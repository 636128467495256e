"""Everything with a gradient or a kernel. Knows nothing of Prefect, MLflow or file formats."""

import os

# Compiled kernels are kept as `models/kernel_cache.py` says. numba reads the variable when it is imported.
os.environ.setdefault(
    "NUMBA_CACHE_LOCATOR_CLASSES",
    "models.kernel_cache.KernelCacheLocator,UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator",
)
