"""torchrun that does not outlive the process that started it: `python -m tasks.train.ranks.torchrun ARGUMENTS`."""

from __future__ import annotations

import os
import sys

from tasks.processes.children import die_with_parent
from tasks.train.worker import PARENT

if __name__ == "__main__":
    die_with_parent(int(os.environ[PARENT]))
    from torch.distributed.run import main

    main(sys.argv[1:])
