"""What keeps Koord from being installed, and who else is on the node; whole nodes are in tests/koordctl/test_matrix."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click import ClickException

from koord.model.version import numbers
from koordctl.doctor import CheckStatus
from koordctl.doctor.checks import CHECKS, DECISIVE, blockers, examine
from koordctl.node import others, settings
from koordctl.node.collect import RECORDING_FILE, Recording, read_recording
from koordctl.node.facts import Facts, KubeletSettings
from koordctl.node.files import NodeFiles
from tests.koordctl.doctor.goodnode import GOOD, KUBELET, record

SOCKET = "/run/koord-runtimeproxy/runtimeproxy.sock"
UNIX = f"Num RefCount Protocol Flags Type St Inode Path\nffff: 2 0 00010000 0001 01 4711 {SOCKET}\n"
OUR_PROXY = (
    "/usr/bin/python3\0-I\0/usr/bin/koord-runtime-proxy\0--remote-runtime-service-endpoint=/run/cri-dockerd.sock\0"
)


def test_a_good_node_has_no_blocker() -> None:
    assert blockers(GOOD) == ()


def test_a_node_of_which_nothing_is_known_is_refused_without_an_error() -> None:
    reasons = blockers(Facts())
    assert {"systemd", "kubelet-found", "runtime", "cgroup-version"} <= {each.check for each in reasons}
    assert all(each.status is CheckStatus.FAIL and each.sentence and each.remedy for each in reasons)


def test_every_failure_that_decides_is_one_of_doctors_lines() -> None:
    assert set(DECISIVE) <= set(CHECKS)
    facts = replace(GOOD, kernel_release="4.9.0", kubelet=replace(KUBELET, version="v1.22.0"))
    failed = [finding for finding in examine(facts) if finding.status is CheckStatus.FAIL]
    assert list(blockers(facts)) == failed


def test_a_kubelet_whose_configuration_cannot_be_read() -> None:
    facts = replace(GOOD, kubelet=replace(KUBELET, config_problem="/var/lib/kubelet/config.yaml cannot be read"))
    assert [each.sentence for each in blockers(facts)] == ["/var/lib/kubelet/config.yaml cannot be read"]


def test_without_a_kubelet_there_is_one_reason_only() -> None:
    assert [each.check for each in blockers(replace(GOOD, kubelet=KubeletSettings()))] == ["kubelet-found"]


@pytest.mark.parametrize(
    ("files", "agents", "holder", "backend"),
    [
        ({}, (), "", ""),
        ({"/proc/7/cmdline": OUR_PROXY}, (), "", "/run/cri-dockerd.sock"),
        ({"/proc/7/cmdline": "/opt/koord-runtime-proxy\0"}, ("koord-runtime-proxy (pid 7)",), "", ""),
        ({"/proc/7/cmdline": "/koordlet\0"}, ("koordlet (pid 7)",), "", ""),
        ({"/proc/7/cmdline": "\0\0"}, (), "", ""),
        ({"/proc/net/unix": UNIX}, (), "", ""),  # whoever it is cannot be seen
        ({"/proc/net/unix": UNIX, "/proc/7/cmdline": OUR_PROXY}, (), "", "/run/cri-dockerd.sock"),
        ({"/proc/net/unix": UNIX, "/proc/7/cmdline": "socat\0"}, (), "socat (pid 7)", ""),
        ({"/proc/net/unix": UNIX.replace(SOCKET, f"/var{SOCKET}"), "/proc/7/cmdline": "nc\0"}, (), "nc (pid 7)", ""),
        ({"/proc/net/unix": UNIX.replace("00010000", "00000000"), "/proc/7/cmdline": "nc\0"}, (), "", ""),
        ({"/proc/net/unix": "x\ny\n", "/proc/7/cmdline": "nc\0"}, (), "", ""),
    ],
)
def test_who_else_is_there(
    tmp_path: Path, files: dict[str, str], agents: tuple[str, ...], holder: str, backend: str
) -> None:
    record(tmp_path, files)
    (tmp_path / "proc/7/fd").mkdir(parents=True)
    (tmp_path / "proc/7/fd/3").symlink_to("socket:[4711]")
    (tmp_path / "proc/7/fd/4").symlink_to("/dev/null")
    node = NodeFiles(tmp_path)
    found = others.acting(node, others.processes(node))
    assert (found.agents, found.proxy_socket_holder, found.proxy_backend) == (agents, holder, backend)


CONTAINERD = "[plugins.x.containerd.runtimes.runc.options]\nSystemdCgroup = true\n"


@pytest.mark.parametrize(
    ("socket", "files", "driver"),
    [
        ("/run/containerd/containerd.sock", {}, "cgroupfs"),
        ("/run/containerd/containerd.sock", {"/etc/containerd/config.toml": CONTAINERD}, "systemd"),
        ("/run/containerd/containerd.sock", {"/etc/containerd/config.toml": "a = "}, ""),
        ("/run/containerd/containerd.sock", {"/etc/containerd/config.toml": 'imports = ["/etc/more/*.toml"]\n'}, ""),
        ("/run/crio/crio.sock", {}, "systemd"),
        ("/run/crio/crio.sock", {"/etc/crio/crio.conf": '[crio.runtime]\ncgroup_manager = "cgroupfs"\n'}, "cgroupfs"),
        ("/run/crio/crio.sock", {"/etc/crio/crio.conf.d/10.conf": ""}, ""),
        ("/run/cri-dockerd.sock", {}, ""),
        ("/run/cri-dockerd.sock", {"/etc/docker/daemon.json": '{"exec-opts": "x"}'}, ""),
        (
            "/run/cri-dockerd.sock",
            {"/etc/docker/daemon.json": '{"exec-opts": ["native.cgroupdriver=systemd"]}'},
            "systemd",
        ),
    ],
)
def test_the_runtimes_driver(tmp_path: Path, socket: str, files: dict[str, str], driver: str) -> None:
    record(tmp_path, files)
    assert settings.runtime(NodeFiles(tmp_path), socket, None, can_be_asked=False).cgroup_driver == driver


@pytest.mark.parametrize(
    ("version", "leading"),
    [("v1.30.2", (1, 30)), ("1.6.20~ds1", (1, 6)), ("6.1.0-32-cloud-amd64", (6, 1)), ("", None), ("v1", None)],
)
def test_versions(version: str, leading: tuple[int, int] | None) -> None:
    assert numbers(version) == leading


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kubelet": ""}'])
def test_a_recording_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / RECORDING_FILE).write_text(text)
    with pytest.raises(ClickException, match=RECORDING_FILE):
        read_recording(tmp_path)


@pytest.mark.parametrize("answers", [Recording(), Recording("v1.30.2", ("containerd", "1.7.0"), 1 << 30)])
def test_a_recording_is_read_as_it_was_written(tmp_path: Path, answers: Recording) -> None:
    assert read_recording(tmp_path) is None
    (tmp_path / RECORDING_FILE).write_text(answers.text())
    assert read_recording(tmp_path) == answers
