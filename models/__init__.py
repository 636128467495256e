"""Everything with a gradient or a kernel. Knows nothing of Prefect, MLflow or file formats."""

import os

# Compiled kernels are kept as `models/kernel_cache.py` says. numba reads the variable when it is imported.
_LOCATORS = (
    "models.kernel_cache.KernelCacheLocator",
    "models.kernel_cache.UserKernelCacheLocator",
    "UserProvidedCacheLocator",
    "InTreeCacheLocator",
    "UserWideCacheLocator",
)
os.environ.setdefault("NUMBA_CACHE_LOCATOR_CLASSES", ",".join(_LOCATORS))
