"""Times, sizes and ports of a cluster, in one place."""

from __future__ import annotations

HEAD_PORT = 6379
NODE_PORTS = {"node-manager-port": 6380, "object-manager-port": 6381, "runtime-env-agent-port": 6382}
AGENT_PORTS = {"dashboard-agent-grpc-port": 6383, "dashboard-agent-listen-port": 6384, "metrics-export-port": 6385}
WORKER_PORTS = (6400, 6599)
"""Of the processes that Ray starts, on every machine."""
DASHBOARD_PORT = 8265

HEALTH = {
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "2000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "5",
}
"""A machine that is silent is given up after 25 seconds (Ray's own numbers come to 63); set where the head begins."""
NODE = {"RAY_worker_niceness": "0", "RAY_free_objects_period_milliseconds": "100"}
"""Ray's own niceness is 15, which ranks would inherit; what a machine has fetched it forgets after a second, and takes
the memory of all that comes in that time."""

REACH_SECONDS = 5.0
"""For a head to take a connection."""
ANSWER_SECONDS = 30.0
"""For Ray to start a process on a machine, and for that to answer."""
LOOK_SECONDS = 0.2
"""Between two looks at what runs, and at files that changed."""

BLOCK_BYTES = 8 << 20
"""Of a file, in a message."""
BLOCKS_AHEAD = 3
PART_BYTES = 1 << 18
"""Parts of files are fetched in whole multiples."""
RAY_BYTES = 340e6
"""Memory of Ray on the machine of its head (2.60, measured 2026-11); 177 MB on another, 69 MB for a rank's place."""
RUN_BYTES = 720e6
"""Memory of a run on its machine beside the ranks: flow 360 MB, Prefect's server 160, HomeFiles 130, launcher 70."""
