"""What the figures were measured on."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

from blockyard.core.compiled import is_compiled

PACKAGES = ("fastapi", "uvicorn", "uvloop", "httptools", "pydantic", "ormsgpack")


def describe_machine(peer_version: str | None) -> dict[str, str]:
    """Processor, system and versions."""
    return {
        "processor": processor(),
        "cores": str(num_cores()),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", "")
        if Path("/etc/os-release").exists()
        else platform.system(),
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
        "core": "compiled" if is_compiled() else "plain Python",
        **{name: version(name) for name in PACKAGES},
        "vLLM": peer_version or "not there",
    }


def processor() -> str:
    """Its name."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def num_cores() -> int:
    """Those that we may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
