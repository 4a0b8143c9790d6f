"""What is installed, what it imports, and what the files around it promise."""

import ast
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from server_process import environment, running_server

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = (ROOT / "pyproject.toml").read_text()
FOUNDATIONS = {"cbor2", "librt", "mypy_extensions", "xxhash"}
"""Hashing, and vectors of integers."""

IMPORT_ALL = """
import importlib, pkgutil, sys

class Asked:
    tops = set()
    def find_spec(self, name, path=None, target=None):
        self.tops.add(name.partition(".")[0])

sys.meta_path.insert(0, Asked())
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, sys.argv[1] + "."):
    if not module.name.endswith(".__main__"):
        importlib.import_module(module.name)
print(*Asked.tops)
"""
"""Imports a package's every module, and says which packages were asked for, installed or not."""


@pytest.fixture(scope="module")
def wheel_files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Names of the files in the wheel."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    with ZipFile(next(folder.glob("*.whl"))) as wheel:
        return wheel.namelist()


def packages_asked_for(package: str) -> set[str]:
    asked = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, package], capture_output=True, text=True, check=False
    )
    assert asked.returncode == 0, asked.stderr
    return set(asked.stdout.split())


def imported_names(source: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source} imports relatively"
            yield node.module or ""


def dockerfile_command(instruction: str) -> list[str]:
    """The words of an instruction in the form of a JSON list."""
    found = re.findall(rf"^(?:{instruction}) (\[.*\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    words: list[str] = json.loads(found[-1])
    return words


def test_the_wheel_holds_both_roots_and_says_that_they_are_typed(wheel_files: list[str]) -> None:
    for package in ("core", "server", "client"):
        assert {f"blockyard/{package}/__init__.py", f"blockyard/{package}/py.typed"} <= set(wheel_files)


def test_the_wheel_holds_the_dashboard_and_the_licence(wheel_files: list[str]) -> None:
    static = {
        str(path.relative_to(ROOT / "service"))
        for path in (ROOT / "service/blockyard/server/static").iterdir()
    }
    assert static <= set(wheel_files)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel_files)


def test_the_wheel_holds_nothing_else(wheel_files: list[str]) -> None:
    tops = {name.partition("/")[0] for name in wheel_files}
    assert sorted(re.sub(r"-[\d.]+\.dist-info", "", top) for top in tops) == ["blockyard", "blockyard"]
    assert not [name for name in wheel_files if re.search(r"(^|/)(tests?/|test_|conftest)|\.(pyc|md)$", name)]
    assert "blockyard/__init__.py" not in wheel_files  # a namespace: other wheels may add to it


def test_a_wheel_is_pure_unless_compiling_is_asked_for(wheel_files: list[str]) -> None:
    assert {Path(name).suffix for name in wheel_files} & {".so", ".pyd"} == set()


def test_what_can_be_compiled_is_there() -> None:
    modules = runpy.run_path(str(ROOT / "service/compile_core.py"))["MODULES"]
    assert modules
    assert [name for name in modules if not (ROOT / f"service/blockyard/core/{name}.py").is_file()] == []


def test_the_core_imports_the_standard_library_hashing_and_vectors_alone() -> None:
    sources = sorted((ROOT / "service/blockyard/core").rglob("*.py"))
    assert sources
    foreign = {
        (source.name, name)
        for source in sources
        for name in imported_names(source)
        if not name.startswith("blockyard.core")
        and name.partition(".")[0] not in FOUNDATIONS | sys.stdlib_module_names
    }
    assert foreign == set()


def test_the_core_imports_no_clock_randomness_environment_or_event_loop() -> None:
    impure = {"asyncio", "datetime", "os", "random", "secrets", "socket", "threading", "time", "uuid"}
    names = {
        name.partition(".")[0]
        for source in (ROOT / "service/blockyard/core").rglob("*.py")
        for name in imported_names(source)
    }
    assert names & impure == set()


def test_a_client_never_imports_the_server_or_what_it_is_made_of() -> None:
    asked = packages_asked_for("blockyard.client")
    assert asked & {"fastapi", "starlette", "uvicorn", "prometheus_client", "torch"} == set()
    assert "httpx" in asked


@pytest.mark.parametrize("package", ["core", "planning"])
def test_the_pure_parts_import_neither_torch_nor_a_server_nor_a_client(package: str) -> None:
    asked = packages_asked_for(f"blockyard.{package}")
    assert asked & {"torch", "fastapi", "starlette", "uvicorn", "httpx", "asyncio"} == set()
    assert "dataclasses" in asked


def test_a_server_never_imports_torch() -> None:
    asked = packages_asked_for("blockyard.server")
    assert "torch" not in asked
    assert "fastapi" in asked


def test_readme_and_ci_run_the_same_tests() -> None:
    command = r"\bpython -m pytest -n auto --dist loadfile"
    assert re.search(rf"{command}$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert re.search(rf"^{command} \| tee ", (ROOT / ".ci/run").read_text(), re.MULTILINE)


def test_whatever_bandit_is_to_pass_over_has_a_reason() -> None:
    exceptions = [
        line[line.index("# nosec") :]
        for root in ("service", "clients")
        for source in (ROOT / root).rglob("*.py")
        for line in source.read_text().splitlines()
        if "# nosec" in line
    ]
    assert exceptions
    assert [each for each in exceptions if not re.fullmatch(r"# nosec (B\d{3},? ?)+  # \w.+", each)] == []
    skips = re.search(r"^\[tool\.bandit\]\nskips = \[(.*)\] # \w.+\n\n", PYPROJECT, re.MULTILINE)
    assert skips
    assert skips.group(1) == '"B101"'


def test_the_image_serves_and_its_health_check_tells_whether_it_does(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    file.write_text('{"tokens": []}')
    assert dockerfile_command("ENTRYPOINT") == ["blockyard"]
    command, *options = dockerfile_command("CMD")
    assert command == "serve"
    python, *check = dockerfile_command(r"\s+CMD")
    assert python == "python"

    def is_healthy(port: int) -> bool:
        variables = environment({"BLOCKYARD_PORT": str(port)})
        checked = subprocess.run([sys.executable, *check], env=variables, capture_output=True, check=False)
        return checked.returncode == 0

    with running_server(*options, BLOCKYARD_TOKEN_FILE=str(file)) as server:
        assert is_healthy(server.port)
    assert not is_healthy(server.port)


def test_the_image_is_built_from_what_the_wheel_needs() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert {name.rstrip("/") for names in copied for name in names.split()} == kept
