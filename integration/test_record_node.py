"""A recording of this very machine says what the machine says, and the made nodes have the files of real kernels."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from integration.record_node import record
from koord.host.cgroup import Tree, detect
from koord.host.files import ROWS
from koord.model.locations import CGROUP_ROOT
from koordctl.doctor.checks import examine
from koordctl.node.collect import gather
from tests.fakes import cgroups

GROUP = "koord-nodes"


@pytest.fixture
def tree(real_machine: None) -> Tree:
    return detect(Path(CGROUP_ROOT), Path("/proc/self/mountinfo").read_text())


@contextlib.contextmanager
def made(directory: Path) -> Iterator[set[str]]:
    """The names of the files in a new cgroup."""
    directory.mkdir()
    try:
        yield {entry.name for entry in os.scandir(directory) if entry.is_file()}
    finally:
        directory.rmdir()


def test_doctor_on_the_recording_equals_doctor_on_the_node(real_machine: None, tmp_path: Path) -> None:
    live = record(tmp_path / "tree")
    again = gather(tmp_path / "tree")
    assert again.recorded and not live.recorded
    assert again == replace(live, recorded=True, daemon_says=again.daemon_says)
    assert examine(again) == examine(replace(live, daemon_says=again.daemon_says))


def compared(names: set[str], files: list[cgroups.File], known: set[str]) -> None:
    """Nothing is invented, and nothing that Koord's rows know is missing."""
    laid_out = {file.name for file in files}
    assert laid_out - names == set()
    assert (names & known) - laid_out <= cgroups.OPTIONAL


def release() -> tuple[int, int]:
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int(minor)


def test_v1_groups_have_the_files_of_this_kernel(tree: Tree) -> None:
    if tree.version != 1:
        pytest.skip("this machine has cgroup v2")
    for controller in set(cgroups.V1) & set(tree.controllers):
        known = {row.v1[1] for row in ROWS.values() if row.v1 is not None and row.v1[0] == controller}
        with made(tree.directory(GROUP, controller)) as names:
            compared(names, cgroups.v1_files(controller, release()), known)


def test_v2_groups_have_the_files_of_this_kernel(tree: Tree) -> None:
    top = tree.root if tree.version == 2 else tree.unified
    if top is None:
        pytest.skip("this machine has no cgroup v2 tree")
    passed_on = (top / "cgroup.subtree_control").read_text().split()
    known = {row.v2 for row in ROWS.values() if row.v2 is not None}
    with made(top / GROUP) as names:
        compared(
            names, cgroups.v2_files(set(passed_on) & set(cgroups.V2), release(), psi=True), known - {"irq.pressure"}
        )
