"""The lines of the units that systemd's defaults would break, and what must not stand there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from koordctl.node.units import UNIT_FILES
from runtimeproxy.options import PROGRAM

UNITS = Path(__file__).parent.parent / "systemd"


def read(unit: str) -> Mapping[str, Mapping[str, list[str]]]:
    """Section → key → values, in order; systemd's files repeat keys, which configparser refuses."""
    sections: dict[str, dict[str, list[str]]] = {}
    current: dict[str, list[str]] = {}
    for line in (UNITS / unit).read_text().splitlines():
        if line.startswith("["):
            current = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            key, separator, value = line.partition("=")
            assert separator, line
            current.setdefault(key, []).append(value)
    return sections


@pytest.mark.parametrize(
    ("unit", "section", "key", "value"),
    [
        ("koord-runtime-proxy.socket", "Socket", "ListenStream", "/run/koord-runtimeproxy/runtimeproxy.sock"),
        ("koord-runtime-proxy.socket", "Socket", "SocketMode", "0660"),
        ("koord-runtime-proxy.socket", "Socket", "DirectoryMode", "0755"),
        ("koord-runtime-proxy.socket", "Socket", "RemoveOnStop", "no"),
        ("koord-runtime-proxy.socket", "Socket", "TriggerLimitIntervalSec", "0"),
        ("koord-runtime-proxy.socket", "Unit", "Before", "kubelet.service"),
        ("koord-runtime-proxy.service", "Service", "Type", "notify"),
        ("koord-runtime-proxy.service", "Service", "NotifyAccess", "all"),
        ("koord-runtime-proxy.service", "Service", "Restart", "always"),
        ("koord-runtime-proxy.service", "Service", "RestartSec", "50ms"),
        ("koord-runtime-proxy.service", "Service", "FileDescriptorStoreMax", "4"),
        ("koord-runtime-proxy.service", "Service", "WatchdogSec", "10"),
        ("koord-runtime-proxy.service", "Service", "KillMode", "process"),
        ("koord-runtime-proxy.service", "Service", "ExecReload", "/bin/kill -HUP $MAINPID"),
        ("koord-runtime-proxy.service", "Unit", "StartLimitIntervalSec", "0"),
        ("koord-runtime-proxy.service", "Unit", "Before", "kubelet.service"),
        ("koord-runtime-proxy.service", "Unit", "After", "koord-runtime-proxy.socket containerd.service"),
        ("koord-qosd.service", "Service", "Type", "notify"),
        ("koord-qosd.service", "Service", "Restart", "always"),
        ("koord-qosd.service", "Service", "WatchdogSec", "60"),
        ("koord-qosd.service", "Service", "ExecStopPost", "-/usr/bin/koord-qosd give-back"),
        ("koord-qosd.service", "Service", "LimitNOFILE", "65536"),
        ("koord-qosd.service", "Service", "StateDirectory", "koord"),
        ("koord-qosd.service", "Unit", "Before", "kubelet.service"),
        ("koord-qosd.service", "Service", "Slice", "koord.slice"),
        ("koord-runtime-proxy.service", "Service", "Slice", "koord.slice"),
        (
            "koord-runtime-proxy.service",
            "Service",
            "Environment",
            "MALLOC_MMAP_THRESHOLD_=131072 MALLOC_ARENA_MAX=1",
        ),
        ("koord.slice", "Slice", "CPUWeight", "1000"),
        ("koord.slice", "Unit", "StopWhenUnneeded", "yes"),
    ],
)
def test_promised_lines(unit: str, section: str, key: str, value: str) -> None:
    assert read(unit)[section][key] == [value]


@pytest.mark.parametrize("unit", ["koord-runtime-proxy.service", "koord-qosd.service"])
def test_no_runtime_directory_holds_the_cri_socket_and_the_shared_one_survives_a_stop(unit: str) -> None:
    service = read(unit)["Service"]
    assert service["RuntimeDirectory"] == ["koord"]
    assert service["RuntimeDirectoryPreserve"] == ["yes"]


def test_the_proxys_command_line_is_valid_and_names_the_units_socket() -> None:
    program, *arguments = read("koord-runtime-proxy.service")["Service"]["ExecStart"][0].split()
    options = PROGRAM.load(PROGRAM.parse(arguments))
    assert program == "/usr/bin/koord-runtime-proxy"
    assert [options.endpoint] == read("koord-runtime-proxy.socket")["Socket"]["ListenStream"]


def test_the_proxy_can_make_the_directory_of_its_socket_again_but_no_units_and_rules() -> None:
    """A bind mount of the directory itself would go with it."""
    service = read("koord-runtime-proxy.service")["Service"]
    (socket,) = read("koord-runtime-proxy.socket")["Socket"]["ListenStream"]
    assert service["ReadWritePaths"] == [str(Path(socket).parent.parent)]
    assert service["ReadOnlyPaths"] == ["-/run/systemd -/run/udev"]
    assert service["ProtectSystem"] == ["strict"]


def test_systemd_waits_longer_than_the_proxy_drains() -> None:
    stop_s = float(read("koord-runtime-proxy.service")["Service"]["TimeoutStopSec"][0])
    assert stop_s > PROGRAM.load(PROGRAM.parse([])).stop_timeout_s + 5


def mebibytes(value: list[str]) -> int:
    (text,) = value
    return int(text.removesuffix("M")) if text.endswith("M") else 1024 * int(text.removesuffix("G"))


def test_the_slice_protects_as_much_memory_as_its_services_claim_and_they_claim_less_than_they_may_use() -> None:
    """On a mount without memory_recursiveprot each cgroup on the way must say its own."""
    services = [read(unit)["Service"] for unit in ("koord-runtime-proxy.service", "koord-qosd.service")]
    claimed = [mebibytes(service["MemoryMin"]) for service in services]
    assert mebibytes(read("koord.slice")["Slice"]["MemoryMin"]) == sum(claimed)
    assert all(least < mebibytes(service["MemoryMax"]) for least, service in zip(claimed, services, strict=True))


def test_every_unit_is_installed_by_koordctl() -> None:
    assert {path.name for path in UNITS.iterdir()} == set(UNIT_FILES)
