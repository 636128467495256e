"""What the machine does while a model trains: CPU, memory, GPU, under MLflow's own names (`system/...`)."""

from __future__ import annotations

import shutil
import subprocess

import psutil

from tasks.processes.memory import tree_bytes

_GPU_QUERY = "index,utilization.gpu,memory.used,memory.total,power.draw"


class SystemSampler:
    """Samples the machine; each call gives the state since the last one."""

    def __init__(self) -> None:
        """The first call of psutil's CPU meter only starts it."""
        psutil.cpu_percent()
        self._nvidia_smi = shutil.which("nvidia-smi")

    def __call__(self) -> dict[str, float]:
        """Return metrics by name. `process_tree_memory_megabytes` leaves out the kernel's page cache."""
        memory = psutil.virtual_memory()
        return {
            "system/cpu_utilization_percentage": psutil.cpu_percent(),
            "system/system_memory_usage_megabytes": memory.used / 1e6,
            "system/system_memory_usage_percentage": memory.percent,
            "system/process_tree_memory_megabytes": tree_bytes() / 1e6,
            **self._gpus(),
        }

    def _gpus(self) -> dict[str, float]:
        if self._nvidia_smi is None:
            return {}
        try:
            command = [self._nvidia_smi, f"--query-gpu={_GPU_QUERY}", "--format=csv,noheader,nounits"]
            text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout
        except (OSError, subprocess.SubprocessError):
            self._nvidia_smi = None  # no driver behind it, or it hangs: not asked again
            return {}
        return parse_gpus(text)


def parse_gpus(text: str) -> dict[str, float]:
    """Read `nvidia-smi --query-gpu=index,utilization.gpu,memory.used,memory.total,power.draw` (units: %, MiB, W).

    A field that the card does not report (`[N/A]`) is left out.
    """
    metrics: dict[str, float] = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 5:
            continue
        index, utilization, used, total, power = fields
        numbers = {
            "utilization_percentage": _number(utilization),
            "memory_usage_megabytes": _scaled(_number(used), 2**20 / 1e6),
            "power_usage_watts": _number(power),
        }
        used_mib, total_mib = _number(used), _number(total)
        if used_mib is not None and total_mib:
            numbers["memory_usage_percentage"] = 100 * used_mib / total_mib
        metrics.update({f"system/gpu_{index}_{name}": value for name, value in numbers.items() if value is not None})
    return metrics


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
