"""What a guest gets of this checkout: a tar that QEMU shows it as a disk and the guest unpacks to /srv/payload.

``lib/`` holds the Python distributions that the programs in ``inside`` import, ``repo/`` our packages, both compiled
(compiling is slow on emulated CPUs); ``files`` are added by name. Invariant: nothing is fetched; a distribution that is
not in this environment is an error that names it.
"""

from __future__ import annotations

import compileall
import importlib.metadata
import py_compile
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PACKAGES = ("koord", "runtimeproxy", "qosd", "koordctl", "integration", "tests", "systemd", "manifests")
DISTRIBUTIONS = (
    *("protobuf", "PyYAML", "uvloop", "msgspec", "jeepney", "prometheus-client", "click"),
    *("h2", "hpack", "hyperframe", "grpcio", "typing_extensions"),
)
ROOT = "/srv/payload"
PYTHONPATH = f"{ROOT}/repo:{ROOT}/lib"


def write(target: Path, files: Mapping[str, Path]) -> None:
    """Write the tar; ``files`` maps names in the payload to files here."""
    stage = target.with_suffix(".stage")
    try:
        for name in DISTRIBUTIONS:
            _copy_distribution(name, stage / "lib")
        ignored = shutil.ignore_patterns("__pycache__", "kubernetes", "rootfs")
        for name in PACKAGES:
            shutil.copytree(REPOSITORY / name, stage / "repo" / name, ignore=ignored)
        for name, file in files.items():
            (stage / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, stage / name)
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        compileall.compile_dir(stage, quiet=2, workers=0, invalidation_mode=mode, stripdir=str(stage))
        subprocess.run(["tar", "-cf", str(target), "-C", str(stage), "."], check=True)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _copy_distribution(name: str, target: Path) -> None:
    """Every file of an installed distribution but its console scripts."""
    distribution = importlib.metadata.distribution(name)
    for file in distribution.files or ():
        if ".." in file.parts or "__pycache__" in file.parts:
            continue
        destination = target / file
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(distribution.locate_file(file)), destination)
