"""Torch is the workers' alone."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("package", ["client", "core", "planning", "server.app", "server.command_line"])
def test_nothing_else_imports_torch(package: str) -> None:
    code = f"import sys, blockyard.{package}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
