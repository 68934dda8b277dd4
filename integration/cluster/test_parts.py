"""What the control plane is made of, each by itself: ports, a part's life, the files of a plane that is not started."""

from __future__ import annotations

import shutil
import socket
import time
from pathlib import Path

import pytest
from cryptography import x509

from integration.cluster.controlplane import ControlPlane, Options
from integration.cluster.part import GRACE_S, Part
from integration.cluster.ports import free_ports
from integration.harness.processes import HarnessError


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_port_that_is_listened_on_is_not_free(address: str) -> None:
    (first,) = free_ports(1)
    with socket.socket() as listener:
        listener.bind((address, first))
        listener.listen()
        with pytest.raises(HarnessError, match="0 free ports of 1"):
            free_ports(1, first, first + 1)


def test_ports_are_distinct_and_below_the_clients_range() -> None:
    ports = free_ports(50)
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert len(set(ports)) == 50 and max(ports) < lowest


def sleeper(tmp_path: Path) -> Part:
    return Part([shutil.which("sleep") or "", "60"], tmp_path / "log", lambda: True)


def test_a_paused_part_ends_by_sigterm(tmp_path: Path) -> None:
    part = sleeper(tmp_path)
    part.start()
    part.pause()
    began = time.monotonic()
    part.stop()
    assert not part.running and time.monotonic() - began < GRACE_S / 2


def test_a_part_that_does_not_run_has_no_pid(tmp_path: Path) -> None:
    part = sleeper(tmp_path)
    part.stop()
    part.kill()
    with pytest.raises(HarnessError, match="sleep is not running"):
        part.pause()
    part.start()
    assert Path(f"/proc/{part.pid}").exists()
    part.kill()
    with pytest.raises(HarnessError, match="sleep is not running"):
        assert part.pid


def test_options_reach_the_api_server(tmp_path: Path) -> None:
    options = Options(server_hosts=("10.0.2.2",), api_server_flags=("--v=4",))
    plane = ControlPlane(tmp_path, options)
    assert plane.api_server.argv[-1] == "--v=4"
    certificate = x509.load_pem_x509_certificate((tmp_path / "pki" / "kube-apiserver.crt").read_bytes())
    hosts = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = [str(address) for address in hosts.get_values_for_type(x509.IPAddress)]
    assert addresses == ["127.0.0.1", "10.96.0.1", "10.0.2.2"]
    assert [part.name for part in plane.parts] == ["etcd", "kube-apiserver"]
    with pytest.raises(HarnessError, match="no kube-scheduler among"):
        plane.part("kube-scheduler")


def test_a_closed_plane_leaves_its_logs(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path)
    plane.etcd.start()
    plane.close()
    assert not plane.etcd.running and [path.name for path in tmp_path.iterdir()] == ["etcd.log"]


def test_a_user_keeps_its_certificate_until_it_is_rotated(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path)
    pair = plane.identity("bob", ["dev"])
    issued = pair.certificate.read_bytes()
    path = plane.kubeconfig("bob", ["dev"])
    assert str(pair.certificate) in path.read_text() and pair.certificate.read_bytes() == issued
    plane.authority.issue_client("bob", ["dev"])
    assert pair.certificate.read_bytes() != issued
