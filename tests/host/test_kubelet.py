"""kubelet found in a /proc of our own, and what its files claim."""

from __future__ import annotations

from pathlib import Path

from koord.host import kubelet
from koord.host.claims import CGROUP_ROOT, DRIVER


def process(proc: Path, pid: int, name: str, args: list[str]) -> Path:
    """Make process ``pid``; its root directory."""
    directory = proc / str(pid)
    (directory / "root").mkdir(parents=True)
    (directory / "comm").write_text(name + "\n")
    (directory / "cmdline").write_bytes(b"".join(arg.encode() + b"\0" for arg in args))
    return directory / "root"


def test_without_a_process_the_usual_files_are_read(tmp_path: Path) -> None:
    found = kubelet.find(tmp_path / "proc", tmp_path)
    assert (found.pid, found.args) == (0, ())
    assert kubelet.claims(found, [tmp_path / "etc/containerd/config.toml"]).claims == ()
    (tmp_path / "var/lib/kubelet").mkdir(parents=True)
    (tmp_path / "var/lib/kubelet/config.yaml").write_text("cgroupDriver: systemd\n")
    assert [claim.value for claim in kubelet.claims(found, []).of(DRIVER)] == ["systemd"]
    assert found.root_dir == tmp_path / "var/lib/kubelet"


def test_flags_come_before_drop_ins_and_those_before_the_file(tmp_path: Path) -> None:
    process(tmp_path, 7, "kubelet-helper", ["kubelet-helper"])
    root = process(
        tmp_path,
        31,
        "kubelet",
        ["/usr/bin/kubelet", "--config", "/etc/k.yaml", "--config-dir=/etc/k.d", "--cgroup-root=/n", "--root-dir=/k"],
    )
    (root / "etc/k.d").mkdir(parents=True)
    (root / "etc/k.yaml").write_text("cgroupDriver: cgroupfs\ncgroupRoot: /other\n")
    (root / "etc/k.d/10-a.conf").write_text("cgroupDriver: cgroupfs\n")
    (root / "etc/k.d/20-b.conf").write_text("cgroupDriver: systemd\n")
    (root / "etc/k.d/README").write_text("[\n")
    found = kubelet.find(tmp_path, Path("/"))
    said = kubelet.claims(found, [])
    assert (found.pid, found.root_dir) == (31, root / "k")
    assert [claim.value for claim in said.of(CGROUP_ROOT)] == ["/n", "/other"]
    assert [claim.value for claim in said.of(DRIVER)] == ["systemd", "cgroupfs", "cgroupfs"]
    assert said.problems == ()


def test_the_runtimes_configuration_comes_last(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[a.containerd.runtimes.runc.options]\nSystemdCgroup = true\n")
    said = kubelet.claims(kubelet.find(tmp_path, tmp_path), [tmp_path / "config.toml"])
    assert [(claim.value, claim.source) for claim in said.claims] == [("systemd", f"{tmp_path}/config.toml")]
