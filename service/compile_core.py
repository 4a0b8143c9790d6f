"""Compiles the core's busiest modules into a wheel that is built with ``BLOCKYARD_COMPILE=1``.

A hook of hatchling's. Without the variable, and for an editable install, it does nothing, and nothing more is
needed to build: the wheel is pure Python. With it, mypyc makes extension modules from a copy of the sources.
In the wheel they lie beside these, and Python prefers them; the wheel is then for one version of Python on
one platform, and building it takes a C compiler.
"""

import os
import shutil
from contextlib import chdir
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULES = (
    "adaptive_queue",
    "allocator",
    "arithmetic",
    "block_store",
    "charges",
    "chunk_ends",
    "compiled",
    "content",
    "forks",
    "free_queue",
    "grade",
    "headroom",
    "histogram",
    "kinds/__init__",
    "kinds/base",
    "kinds/chunked_local",
    "kinds/fixed",
    "kinds/full_attention",
    "kinds/mamba",
    "kinds/reference_window",
    "kinds/sliding_window",
    "kv_batch",
    "kv_events",
    "lease",
    "marks",
    "packing",
    "prefix_index",
    "prefix_lookup",
    "remembered_counts",
    "reply_memory",
    "residency",
    "retention",
    "sequence",
    "sequences",
    "soft_pins",
    "step",
    "tenants",
    "weight_trial",
)
"""Of the core: where a call spends its time. Commands, replies and what else goes over the wire stay Python,
as the libraries that read and write these look into their classes; so does what checks a value's type, and
`Pool`, which servers refer to weakly.
"""


class CompiledCore(BuildHookInterface[Any]):
    """See the module."""

    _folder: Path | None = None

    def dependencies(self) -> list[str]:
        """What compiling takes; nothing where it is not asked for."""
        return ["mypy>=2.4", "setuptools"] if _is_asked_for() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and have the wheel take what comes of it."""
        if version == "editable" or not _is_asked_for():
            return
        folder = Path(mkdtemp(prefix="blockyard-"))
        self._folder = folder
        shutil.copytree(Path(self.root, "service/blockyard/core"), folder / "blockyard/core")
        built = compile_in(folder)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for path in built.rglob("*"):
            if path.is_file():
                build_data["force_include"][str(path)] = str(path.relative_to(built))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Clear up."""
        if self._folder is not None:
            shutil.rmtree(self._folder)


def _is_asked_for() -> bool:
    return os.environ.get("BLOCKYARD_COMPILE", "") not in ("", "0")


def compile_in(folder: Path) -> Path:
    """Compile the sources in ``folder``, and return where the extension modules then are."""
    # Only in a build environment that `dependencies` was asked for.
    from mypyc.build import mypycify  # noqa: PLC0415
    from setuptools import Distribution  # noqa: PLC0415

    with chdir(folder):
        options = ["--config-file=", "--namespace-packages", "--explicit-package-bases"]
        options += ["--ignore-missing-imports", f"--cache-dir={folder / 'cache'}"]
        # All are named: else those that stay Python might be read from a blockyard that is installed already.
        sources = sorted(map(str, Path("blockyard/core").rglob("*.py")))
        extensions = mypycify(
            [*options, *sources],
            only_compile_paths=[f"blockyard/core/{module}.py" for module in MODULES],
            opt_level="2",
            debug_level="0",
            group_name="blockyard.core.compiled",
            target_dir="c",
        )
        command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = "lib", "temp"
        command.ensure_finalized()
        command.run()
    return folder / "lib"
