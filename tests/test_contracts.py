"""Who may talk to a cluster: the contract tried on small trees with the cluster parts that may be, and what loads."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.docpages import ROOT

ROOTS = ("koord", "runtimeproxy", "qosd", "koordctl", "koord_manager", "koord_scheduler")
CLUSTER = ("koord.kube", "koord.kube.client", "aiohttp", "httptools", "grpc", "grpc.aio", "grpclib.client")
SHARED = {
    "koord.kube.client": ("aiohttp",),
    "koord.pb.link_grpc": ("grpc",),
    "koord.host.web": ("aiohttp",),
}


def lint(tree: Path, modules: Mapping[str, tuple[str, ...]]) -> subprocess.CompletedProcess[str]:
    """``modules``: what each of them imports, in a function."""
    parents = {".".join(names[:depth]) for names in map(_split, modules) for depth in range(1, len(names))}
    for package in (*ROOTS, *parents):
        tree.joinpath(*_split(package)).mkdir(parents=True, exist_ok=True)
        tree.joinpath(*_split(package), "__init__.py").touch()
    for module, names in modules.items():
        lines = ["def late():", *[f"    import {name}" for name in names], "    return None"]
        path = tree.joinpath(*_split(module))
        (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).write_text("\n".join(lines))
    shutil.copy(ROOT / "pyproject.toml", tree)
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--contract", "cluster"]
    environment = {"PYTHONPATH": str(tree), "PATH": ""}
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


def _split(module: str) -> list[str]:
    return module.split(".")


@pytest.mark.parametrize(
    "part",
    [
        {"qosd.cluster": CLUSTER, "koordctl.cluster": CLUSTER},
        {"qosd.cluster": CLUSTER, "qosd.cluster.link": CLUSTER, "koordctl.cluster.nodes.list": CLUSTER},
        {"qosd.cluster.link": ("koord.pb.link_grpc", "koord.host.web")},
        {},
    ],
    ids=["modules", "packages", "by way of others", "not there"],
)
def test_the_cluster_parts_may(tmp_path: Path, part: Mapping[str, tuple[str, ...]]) -> None:
    late = {"qosd.node": tuple(part), "koordctl.commands.get": tuple(part)}
    run = lint(tmp_path, {**SHARED, **part, **late})
    assert run.returncode == 0, run.stdout
    assert "Contracts: 1 kept, 0 broken." in run.stdout


def test_nobody_else_may(tmp_path: Path) -> None:
    others = {
        "qosd.node": CLUSTER,
        "qosd.clusters": CLUSTER,
        "qosd.inspect.cluster": CLUSTER,
        "koordctl.commands.get": CLUSTER,
    }
    by_way = {"qosd.sense.web": ("koord.host.web",), "qosd.link": ("koord.pb.link_grpc",)}
    run = lint(tmp_path, {**SHARED, "qosd.cluster.link": CLUSTER, **others, **by_way})
    assert run.returncode == 1, run.stdout + run.stderr
    assert "Contracts: 0 kept, 1 broken." in run.stdout
    text = " ".join(run.stdout.split())
    for module in others:
        for name in ("koord.kube", "koord.kube.client", "aiohttp", "httptools", "grpc", "grpclib"):
            assert f"{module} -> {name} (" in text
    for chain in (("qosd.sense.web", "koord.host.web", "aiohttp"), ("qosd.link", "koord.pb.link_grpc", "grpc")):
        for importer, imported in pairwise(chain):
            assert f"{importer} -> {imported} (" in text
    assert "qosd.cluster.link ->" not in text


@pytest.mark.parametrize("program", ["qosd.daemon", "koordctl.__main__"])
def test_a_program_that_starts_has_loaded_nothing_of_it(program: str) -> None:
    names = ("aiohttp", "httptools", "grpc", "grpclib", "numpy", "koord.kube", "qosd.cluster", "koordctl.cluster")
    code = f"import sys, {program}; print([name for name in {names!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
