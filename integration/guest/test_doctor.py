"""The cells of the matrix that can be had: real hierarchies, drivers and CPU manager policies, under systemd.

kubelet and containerd are set as asked, kubelet makes its cgroups, and ``koordctl doctor`` must say what is there. The
node is then recorded: doctor on the recording says the same. The rest of the matrix is ``tests/koordctl/test_matrix``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration.guest import payload
from integration.guest.guest import Guest, booted
from integration.guest.image import Image
from koord.host.files import ROWS
from koord.host.layout import kubepods_path
from koord.model.cgroup_parent import CgroupStyle
from koordctl.doctor.kernel import NO_REMOTE_PARTITIONS
from tests.fakes import cgroups

pytestmark = pytest.mark.soak

KERNEL = (6, 1)
V1, HYBRID, V2 = "v1", "hybrid", "v2"
KERNEL_ARGUMENTS = {
    V2: "",
    HYBRID: "systemd.unified_cgroup_hierarchy=0",
    V1: "systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=yes",
}
CONTAINERD, KUBELET = "/etc/containerd/config.toml", "/var/lib/kubelet/config.yaml"
_WAIT_S = 120.0


@dataclass(frozen=True)
class Settings:
    """``runtimes``: containerd's driver, "" = kubelet's."""

    driver: str
    policy: str = "none"
    root: str = ""
    runtimes: str = ""

    @property
    def kubepods(self) -> str:
        return kubepods_path(self.root, CgroupStyle(self.driver))


@pytest.fixture(scope="module", params=KERNEL_ARGUMENTS)
def booted_as(
    request: pytest.FixtureRequest, guest_image: Image, guest_payload: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Guest]]:
    """The hierarchy, and a guest that booted with it; the one that is everybody's goes on from where it was saved."""
    hierarchy: str = request.param
    directory = tmp_path_factory.mktemp(hierarchy)
    arguments = KERNEL_ARGUMENTS[hierarchy]
    saved = None if arguments else request.getfixturevalue("saved_guest")
    with booted(guest_image, directory, guest_payload, kernel_arguments=arguments, saved=saved) as guest:
        yield hierarchy, guest


def set_up(guest: Guest, hierarchy: str, settings: Settings) -> str:
    """Restart runtime and kubelet with these settings; the directory of kubelet's cgroup, in which pods are."""
    systemd = str((settings.runtimes or settings.driver) == "systemd").lower()
    lines = [f"cgroupDriver: {settings.driver}", f"cpuManagerPolicy: {settings.policy}"]
    if settings.root:
        lines.append(f"cgroupRoot: {settings.root}")
    if settings.policy == "static":
        lines.append('reservedSystemCPUs: "0"')
    config = "\\n".join(lines)
    top = "/sys/fs/cgroup" if hierarchy == V2 else "/sys/fs/cgroup/cpu"
    guest.sh(f"""
        systemctl stop kubelet
        sed -i 's/SystemdCgroup = .*/SystemdCgroup = {systemd}/' {CONTAINERD}
        sed -i -E '/^(cgroupDriver|cgroupRoot|cpuManagerPolicy|reservedSystemCPUs):/d' {KUBELET}
        printf '{config}\\n' >> {KUBELET}
        rm -f /var/lib/kubelet/cpu_manager_state
        systemctl restart containerd
    """)
    if settings.root:
        make_root(guest, hierarchy, settings)
    guest.do("systemctl", "start", "kubelet")
    directory = top + settings.kubepods
    tier = "kubepods-besteffort.slice" if settings.driver == "systemd" and not settings.root else "besteffort"
    guest.wait(lambda: any(tier in name for name in guest.sh(f"ls {directory} || true").split()), directory, _WAIT_S)
    return directory


def make_root(guest: Guest, hierarchy: str, settings: Settings) -> None:
    """kubelet wants its cgroupRoot to exist, with every controller."""
    if settings.driver == "systemd":
        guest.do("systemctl", "start", f"{settings.root.strip('/')}.slice")
    elif hierarchy == V2:
        guest.do("mkdir", "-p", f"/sys/fs/cgroup{settings.root}")
    else:
        guest.sh(f'for one in /sys/fs/cgroup/*/; do mkdir -p "$one{settings.root}"; done')


def koordctl(guest: Guest, *arguments: str) -> dict[str, Any]:
    done = guest.run("python3", "-m", "koordctl", *arguments, "-o", "json", PYTHONPATH=payload.PYTHONPATH)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def said(report: dict[str, Any]) -> dict[str, str]:
    return {each["check"]: f"{each['status']}: {each['sentence']}" for each in report["findings"]}


CELLS = Settings("systemd"), Settings("cgroupfs", "static"), Settings("cgroupfs", root="/kubelet")


@pytest.mark.parametrize("settings", CELLS, ids=lambda each: f"{each.driver} {each.policy} {each.root}")
def test_a_node_where_koord_can_be_installed(booted_as: tuple[str, Guest], settings: Settings) -> None:
    hierarchy, guest = booted_as
    set_up(guest, hierarchy, settings)
    report = koordctl(guest, "doctor")
    findings = said(report)
    assert (report["source"], report["blockers"]) == ("live", [])
    assert findings["cgroup-version"].startswith("ok: cgroup v2" if hierarchy == V2 else "info: cgroup v1")
    assert ("with a v2 tree beside it" in findings["cgroup-version"]) == (hierarchy == HYBRID)
    assert findings["kubelet-tree"] == f"ok: pods are below {settings.kubepods} ({settings.driver} driver)"
    assert findings["cgroup-driver"] == f"ok: {settings.driver}"
    assert findings["kubelet-version"].startswith("ok: kubelet v1.")
    assert findings["runtime"].startswith("ok: containerd 1.6.")
    assert ("stay untouched" in findings["cpu-manager"]) == (settings.policy == "static")
    assert findings["cpuset-partition"] == f"info: {NO_REMOTE_PARTITIONS}"
    assert findings["resctrl"] == "info: the CPU has no RDT: caches and bandwidth are shared without limits"
    recorded_equals(guest, findings)


def recorded_equals(guest: Guest, findings: dict[str, str]) -> None:
    guest.do("rm", "-rf", "/var/tmp/recorded")
    guest.do("python3", "-m", "integration.record_node", "/var/tmp/recorded", PYTHONPATH=payload.PYTHONPATH)
    report = koordctl(guest, "doctor", "--root", "/var/tmp/recorded", "--offline")
    again = said(report)
    assert report["source"] == "recorded"
    assert {**again, "daemon": "", "journal-space": ""} == {**findings, "daemon": "", "journal-space": ""}


def test_drivers_that_differ_are_refused(booted_as: tuple[str, Guest]) -> None:
    hierarchy, guest = booted_as
    set_up(guest, hierarchy, Settings("systemd", runtimes="cgroupfs"))
    (reason,) = koordctl(guest, "doctor")["blockers"]
    assert reason["sentence"] == (
        f"kubelet's cgroup driver is systemd, and containerd's is cgroupfs ({CONTAINERD}); "
        f"driver: {KUBELET} says systemd, but {CONTAINERD} says cgroupfs"
    )


def test_made_nodes_have_the_files_of_this_kernel(booted_as: tuple[str, Guest]) -> None:
    hierarchy, guest = booted_as
    directory = set_up(guest, hierarchy, Settings("systemd"))
    tier = f"{directory}/kubepods-burstable.slice"
    if hierarchy == V2:
        controllers = guest.text(f"{tier}/cgroup.controllers").split()
        files = cgroups.v2_files([name for name in controllers if name in cgroups.V2], KERNEL, psi=True)
        known = {row.v2 for row in ROWS.values() if row.v2}
    else:
        files = cgroups.v1_files("cpu", KERNEL)
        known = {row.v1[1] for row in ROWS.values() if row.v1 and row.v1[0] == "cpu"}
    names = set(guest.sh(f"ls {tier}").split())
    laid_out = {file.name for file in files}
    assert laid_out - names == set()
    assert (names & known) - laid_out <= cgroups.OPTIONAL
