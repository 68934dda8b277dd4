"""Pressure triggers on plain files: what is written, and what is said where a kernel refuses (integration/host has
the kernel's own)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from koord.host import pressuretrigger


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_what_the_kernel_is_told(tmp_path: Path) -> None:
    file = tmp_path / "memory"
    file.touch()
    descriptor, window_us = pressuretrigger.psi(file, "some", 150_000, 1_000_000)
    os.close(descriptor)
    assert (file.read_bytes(), window_us) == (b"some 150000 1000000\0", 1_000_000)


@pytest.mark.parametrize("name", ["memory.pressure_level", "cgroup.event_control"])
def test_a_level_needs_both_files(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    before = descriptors()
    with pytest.raises(OSError) as caught:
        pressuretrigger.memory_level(tmp_path, "medium")
    assert caught.value.errno == errno.ENOENT
    assert descriptors() == before


def test_the_order_of_a_level_names_both_descriptors(tmp_path: Path) -> None:
    for name in ("memory.pressure_level", "cgroup.event_control"):
        (tmp_path / name).touch()
    before = descriptors()
    event = pressuretrigger.memory_level(tmp_path, "critical")
    words = (tmp_path / "cgroup.event_control").read_text().split()
    assert (words[0], words[2]) == (str(event), "critical")
    os.close(event)
    assert descriptors() == before


@pytest.mark.parametrize("path", ["gone/memory", "directory"])
def test_a_refusal_names_the_file_and_leaves_nothing_open(tmp_path: Path, path: str) -> None:
    (tmp_path / "directory").mkdir()
    before = descriptors()
    with pytest.raises(OSError) as caught:
        pressuretrigger.psi(tmp_path / path, "some", 1, 2_000_000)
    assert caught.value.filename == str(tmp_path / path) or caught.value.filename == tmp_path / path
    assert descriptors() == before
