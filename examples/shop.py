"""The tables of a shop as Parquet files, about a million rows: `python examples/shop.py data/shop`

The same as the data set `synthetic_shop` makes, to try `graphmill inspect` and the data set `database` on.
"""

from __future__ import annotations

import sys
from pathlib import Path

from configs.registry import DATASETS
from tasks.ingest.synthetic.shop import write_shop


def main(folder: Path) -> None:
    """Write customers, products, orders, items and reviews."""
    for name, count in write_shop(DATASETS.config({"name": "synthetic_shop"}), folder).items():
        print(f"{folder / name}.parquet  {count:,} rows")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/shop.py FOLDER")
    main(Path(sys.argv[1]))
