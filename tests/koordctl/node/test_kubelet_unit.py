"""Which kubelet units can be wrapped, what the drop-in says, and when it has grown old."""

from __future__ import annotations

import pytest

from koordctl.node.units import (
    Unit,
    UnitFile,
    assignments,
    is_stale,
    kubelet_drop_in,
    kubelet_drop_in_path,
    own_command,
    refusal,
)

UNIT = "kubelet.service"
FLAGS = (
    "--container-runtime-endpoint=unix:///run/koord-runtimeproxy/runtimeproxy.sock "
    "--image-service-endpoint=unix:///run/koord-runtimeproxy/runtimeproxy.sock"
)
KUBEADM = "/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS"


def unit(*texts: str, names: tuple[str, ...] = ("/usr/lib/systemd/system/kubelet.service",)) -> Unit:
    names = (*names, *(f"/etc/systemd/system/{UNIT}.d/{number}.conf" for number in range(10, 10 + len(texts))))
    return Unit(UNIT, tuple(UnitFile(name, text) for name, text in zip(names, texts, strict=False)))


def service(*commands: str) -> str:
    return "\n".join(["[Service]", *(f"ExecStart={each}" for each in commands)])


@pytest.mark.parametrize(
    "command",
    [
        "/usr/bin/kubelet",
        KUBEADM,
        "-/usr/bin/kubelet --a",
        "!!/opt/bin/kubelet",
        '/usr/local/bin/kubelet --node-labels="a=b c" --hostname-override=%H',
        ":/usr/bin/kubelet ${NOT_EXPANDED}",
    ],
)
def test_kubelet_itself(command: str) -> None:
    found = unit(service(command))
    assert refusal(found) == ""
    assert own_command(found) == command
    text = kubelet_drop_in(command)
    assert [value for section, key, value in assignments(text) if key == "ExecStart"] == ["", f"{command} {FLAGS}"]
    assert not is_stale(text, command)
    assert is_stale(text, f"{command} --v=4")


@pytest.mark.parametrize(
    ("commands", "why"),
    [
        ((), "kubelet.service has 0 ExecStart lines, not one"),
        (("/usr/bin/kubelet", "/usr/bin/true"), "kubelet.service has 2 ExecStart lines, not one"),
        (("/bin/sh -c '/usr/bin/kubelet $A'",), "kubelet.service starts /bin/sh, not kubelet itself"),
        (("/usr/local/bin/k3s agent",), "kubelet.service starts /usr/local/bin/k3s, not kubelet itself"),
        (("/usr/bin/taskset -c 0 /usr/bin/kubelet",), "kubelet.service starts /usr/bin/taskset, not kubelet itself"),
        (("$KUBELET --a",), "kubelet.service starts $KUBELET, not kubelet itself"),
        (("/usr/bin/hyperkube kubelet",), "kubelet.service starts /usr/bin/hyperkube, not kubelet itself"),
        (("/usr/bin/kubelet --a ; /bin/true",), "the command of kubelet.service is not understood"),
        (("/usr/bin/kubelet 'open",), "the command of kubelet.service is not understood: /usr/bin/kubelet 'open"),
    ],
)
def test_refused(commands: tuple[str, ...], why: str) -> None:
    assert refusal(unit(service(*commands))).startswith(why)


def test_a_drop_in_that_is_read_after_ours_and_sets_the_command_is_refused() -> None:
    late = UnitFile("/run/systemd/system/kubelet.service.d/99-x.conf", service("", "/usr/bin/kubelet --x"))
    found = unit(service("/usr/bin/kubelet"))
    assert refusal(Unit(UNIT, (*found.files, late))) == f"{late.path} sets ExecStart and is read after 90-koord.conf"
    harmless = UnitFile(late.path, "[Service]\nRestartSec=1\n")
    assert refusal(Unit(UNIT, (*found.files, harmless))) == ""


def test_our_own_drop_in_does_not_count() -> None:
    ours = UnitFile(kubelet_drop_in_path(UNIT), kubelet_drop_in(KUBEADM))
    found = Unit(UNIT, (*unit(service(KUBEADM)).files, ours))
    assert refusal(found) == ""
    assert own_command(found) == KUBEADM
    assert found.values("Service", "ExecStart") == (f"{KUBEADM} {FLAGS}",)
