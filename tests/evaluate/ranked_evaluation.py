"""What each rank of tests/evaluate/test_ranks.py runs: `python -m tests.evaluate.ranked_evaluation WORK`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from tasks.evaluate import worker
from tasks.inference.parts import PartPredictor
from tasks.processes.children import MACHINE
from tests.train.two_processes import end

if __name__ == "__main__":
    rank = os.environ["RANK"]
    os.environ |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", MACHINE: f"{rank}/2"}  # a machine each
    vectors, computed = PartPredictor.node_vectors, []

    def noted(self: PartPredictor, *arguments: Any) -> Any:
        computed.append(1)
        return vectors(self, *arguments)

    PartPredictor.node_vectors = noted
    code = worker.main(Path(sys.argv[1]) / rank / "job.json")
    (Path(sys.argv[1]) / rank / "code").write_text(str(code))
    (Path(sys.argv[1]) / rank / "computed").write_text(str(len(computed)))
    end()
