"""Programs of $KUBEBUILDER_ASSETS are taken if they are of the minor release that flags and tests are written for."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from integration import build


@pytest.mark.parametrize(
    ("target", "says", "taken"),
    [
        ("apiserver", "Kubernetes v1.34.0", True),
        ("apiserver", "Kubernetes v1.33.4", False),
        ("apiserver", "Kubernetes v1.340.0", False),
        ("etcd", "etcd Version: 3.6.1", True),
        ("etcd", "etcd Version: 3.5.21", False),
    ],
)
def test_assets_of_the_same_minor_release_come_first(tmp_path: Path, target: str, says: str, taken: bool) -> None:
    for program in build.targets()[target].programs:
        (tmp_path / program).write_text(f"#!/bin/sh\necho '{says}'\n")
        (tmp_path / program).chmod(0o755)
    directory = build.build(target, {**os.environ, "KUBEBUILDER_ASSETS": str(tmp_path)})
    assert (directory == tmp_path) is taken


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("kube-apiserver", "--version"), f"Kubernetes v{build.kubernetes_version()}\n"),
        (("kube-controller-manager", "--version"), f"Kubernetes v{build.kubernetes_version()}\n"),
        (("kube-scheduler", "--version"), f"Kubernetes v{build.kubernetes_version()}\n"),
        (("kubelet", "--version"), f"Kubernetes v{build.kubernetes_version()}\n"),
        (("kubectl", "version", "--client"), f"Client Version: v{build.kubernetes_version()}\n"),
        (("etcd", "--version"), f"etcd Version: {build.ETCD}."),
        (("helm", "version", "--short"), "v3.19"),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else "",
)
def test_a_built_program_says_its_release(argv: tuple[str, ...], says: str) -> None:
    program, *arguments = argv
    done = subprocess.run([build.program(program), *arguments], check=True, capture_output=True, text=True)
    assert done.stdout.startswith(says), done.stdout


def test_a_program_is_found_by_its_name() -> None:
    assert build.program("kubectl") == build.build("apiserver") / "kubectl"
