"""One operation a file: a plain reference, a fast path, and the dispatch between them."""

import os

# torch keeps what oneDNN prepared for the last 1024 shapes of operands, twice over: 2 MiB more a step where no two
# batches have the same. `dense/products.py` asks for few shapes, so these suffice. Read at the first product.
for _name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    os.environ.setdefault(_name, "128")
