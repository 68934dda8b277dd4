"""The plan: what follows from which facts, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from koord.model.locations import PROXY_SOCKET
from koordctl.install import plan
from koordctl.install import record as records
from koordctl.install.disk import PlacedFile, PlacedLink
from koordctl.install.plan import Flavour, InstallFacts, Programs
from koordctl.install.steps import CheckSandbox
from koordctl.node.facts import RestartFacts, RuntimeFacts
from koordctl.node.units import Unit, UnitFile
from koordctl.views import install as view
from tests.koordctl.install.runs import install
from tests.koordctl.install.world import World, facts, node_facts

PROXY_EXEC = "/usr/bin/koord-runtime-proxy --koord-runtimeproxy-endpoint=/run/koord-runtimeproxy/runtimeproxy.sock"


@pytest.fixture
def found(tmp_path: Path) -> InstallFacts:
    return facts(World(tmp_path).root)


def files(found: InstallFacts) -> dict[str, str]:
    return {
        place.path: place.text if isinstance(place, PlacedFile) else f"-> {place.target}"  # type: ignore[union-attr]
        for place in plan.places(plan.steps(found, with_kubelet=True))
    }


def of_runtime(found: InstallFacts, socket: str, driver: str = "systemd") -> InstallFacts:
    runtime = RuntimeFacts("some", "1", socket, True, cgroup_driver=driver)
    return replace(found, node=replace(found.node, runtime=runtime))


def test_files_of_a_virtual_environment(found: InstallFacts) -> None:
    assert list(files(found)) == [
        "/usr/bin/koord-runtime-proxy",
        "/usr/bin/koord-qosd",
        "/usr/bin/koordctl",
        "/etc/systemd/system/koord-qosd.service",
        "/etc/systemd/system/koord-runtime-proxy.socket",
        "/etc/systemd/system/koord-runtime-proxy.service",
        "/etc/systemd/system/koord.slice",
        "/etc/systemd/system/multi-user.target.wants/koord-qosd.service",
        "/etc/systemd/system/sockets.target.wants/koord-runtime-proxy.socket",
        "/etc/systemd/system/multi-user.target.wants/koord-runtime-proxy.service",
        "/etc/systemd/system/kubelet.service.d/90-koord.conf",
    ]
    assert files(found)["/usr/bin/koordctl"] == "-> /opt/koord/bin/koordctl"


def test_files_of_the_package(tmp_path: Path) -> None:
    places = plan.places(plan.steps(facts(World(tmp_path).root, Flavour.PACKAGE), with_kubelet=False))
    assert places == tuple(
        PlacedLink(f"/etc/systemd/system/{target}.wants/{name}", f"/usr/lib/systemd/system/{name}")
        for name, target in (
            ("koord-qosd.service", "multi-user.target"),
            ("koord-runtime-proxy.socket", "sockets.target"),
            ("koord-runtime-proxy.service", "multi-user.target"),
        )
    )


@pytest.mark.parametrize(
    ("socket", "proxy", "daemon"),
    [
        ("/run/containerd/containerd.sock", None, None),
        ("/var/run/containerd/containerd.sock", None, None),
        (
            "/run/crio/crio.sock",
            "[Unit]\nAfter=crio.service\n\n[Service]\nExecStart=\n"
            f"ExecStart={PROXY_EXEC} --remote-runtime-service-endpoint=/run/crio/crio.sock\n",
            "[Unit]\nAfter=crio.service\n\n[Service]\nExecStart=\n"
            "ExecStart=/usr/bin/koord-qosd --runtime-endpoint=unix:///run/crio/crio.sock\n",
        ),
        (
            "/run/cri-dockerd.sock",
            f"[Unit]\nAfter=cri-docker.service\n\n[Service]\nExecStart=\nExecStart={PROXY_EXEC} "
            "--remote-runtime-service-endpoint=/run/cri-dockerd.sock --backend-runtime-mode=Docker\n",
            "[Unit]\nAfter=cri-docker.service\n\n[Service]\nExecStart=\n"
            "ExecStart=/usr/bin/koord-qosd --runtime-endpoint=unix:///run/cri-dockerd.sock\n",
        ),
        (
            "/srv/c.sock",
            f"[Service]\nExecStart=\nExecStart={PROXY_EXEC} --remote-runtime-service-endpoint=/srv/c.sock\n",
            "[Service]\nExecStart=\nExecStart=/usr/bin/koord-qosd --runtime-endpoint=unix:///srv/c.sock\n",
        ),
    ],
)
def test_another_runtime(found: InstallFacts, socket: str, proxy: str | None, daemon: str | None) -> None:
    written = files(of_runtime(found, socket))
    for unit, expected in (("koord-runtime-proxy", proxy), ("koord-qosd", daemon)):
        text = written.get(f"/etc/systemd/system/{unit}.service.d/50-koord-node.conf")
        assert (text and text.partition("\n")[2]) == expected


def test_the_sockets_group_and_kubelets_directory(found: InstallFacts) -> None:
    node = found.node
    kubelet, runtime = replace(node.kubelet, root_dir="/srv/kubelet"), replace(node.runtime, socket_group="cri")
    written = files(replace(found, node=replace(node, kubelet=kubelet, runtime=runtime)))
    assert written["/etc/systemd/system/koord-runtime-proxy.socket.d/50-koord-node.conf"].endswith(
        "[Socket]\nSocketGroup=cri\n"
    )
    assert (
        "koord-qosd --kubelet-state-dir=/srv/kubelet\n"
        in (written["/etc/systemd/system/koord-qosd.service.d/50-koord-node.conf"])
    )


@pytest.mark.parametrize(
    ("policy", "rules", "text"),
    [
        ("", "", None),
        ("none", "", None),
        ("static", "", "node:\n  cpuManagerPolicy: static\n"),
        ("static", "/etc/koord/qosd-rules.yaml", None),
    ],
)
def test_rules(found: InstallFacts, policy: str, rules: str, text: str | None) -> None:
    node = node_facts(cpu_manager_policy=policy)
    node = replace(node, koord=replace(node.koord, rules_file=rules))
    assert files(replace(found, node=node)).get("/etc/koord/qosd-rules.yaml") == text


@pytest.mark.parametrize(
    ("driver", "tier", "parent", "cgroup"),
    [
        (
            "systemd",
            "/kubepods.slice/kubepods-besteffort.slice",
            "kubepods-besteffort-koord_check_11_22.slice",
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-koord_check_11_22.slice",
        ),
        ("systemd", "", "koord_check_11_22.slice", "/koord_check_11_22.slice"),
        (
            "cgroupfs",
            "/kubepods/besteffort",
            "/kubepods/besteffort/koord-check-11-22",
            "/kubepods/besteffort/koord-check-11-22",
        ),
        (
            "cgroupfs",
            "/k/kubepods/besteffort",
            "/k/kubepods/besteffort/koord-check-11-22",
            "/k/kubepods/besteffort/koord-check-11-22",
        ),
        ("cgroupfs", "", "/koord-check-11-22", "/koord-check-11-22"),
    ],
)
def test_the_sandbox_is_where_best_effort_pods_are(
    found: InstallFacts, driver: str, tier: str, parent: str, cgroup: str
) -> None:
    node = replace(found.node, cgroup=replace(found.node.cgroup, driver=driver, best_effort=tier))
    steps = plan.steps(replace(found, node=node), with_kubelet=True)
    (sandbox,) = (step for step in steps if isinstance(step, CheckSandbox))
    assert (sandbox.parent, sandbox.cgroup) == (parent, cgroup)


def unit(command: str) -> Unit:
    return Unit(
        "kubelet.service", (UnitFile("/etc/systemd/system/kubelet.service", f"[Service]\nExecStart={command}"),)
    )


@pytest.mark.parametrize(
    ("kubelet", "changed", "sentences"),
    [
        ({}, {}, []),
        ({}, {"user": 1000}, ["only root can install"]),
        ({}, {"programs": Programs(Flavour.VENV, "/x", "/y", problem="no program")}, ["no program"]),
        ({"unit_files": None}, {}, ["there is no unit kubelet.service"]),
        (
            {"unit_files": unit("/bin/sh -c kubelet")},
            {},
            ["kubelet.service starts /bin/sh, not kubelet itself, so its endpoints cannot be set in a drop-in"],
        ),
        (
            {"own_endpoint": f"unix:///var{PROXY_SOCKET}"},
            {},
            [f"kubelet is pointed at {PROXY_SOCKET} already, not by a drop-in of Koord's: see its flags"],
        ),
        (
            {"running": False},
            {"user": 1000},
            ["no kubelet is running, so its flags cannot be read", "only root can install"],
        ),
    ],
)
def test_refusals(found: InstallFacts, kubelet: dict[str, Any], changed: dict[str, Any], sentences: list[str]) -> None:
    node = replace(found.node, kubelet=replace(found.node.kubelet, **kubelet))
    reasons = plan.refusals(replace(found, node=node, **changed), True, ())
    assert [each.sentence for each in reasons] == sentences
    assert all(each.remedy for each in reasons)


def test_without_kubelet_only_the_rest_is_refused(found: InstallFacts) -> None:
    changed = replace(found, node=node_facts(running=False))
    assert plan.refusals(changed, False, ()) == ()
    assert [each.sentence for each in plan.refusals(changed, False, ("/usr/bin/koordctl",))] == [
        "/usr/bin/koordctl is there and is not Koord's to replace"
    ]


@pytest.mark.parametrize(
    ("restart", "with_kubelet", "is_refused"),
    [
        (None, True, False),
        (RestartFacts(), True, False),
        (RestartFacts(problem="no route"), True, False),
        (RestartFacts(("the Node offers 475m",)), True, True),
        (RestartFacts(("the Node offers 475m",)), False, False),
    ],
)
def test_kubelet_is_not_restarted_where_that_ends_pods(
    found: InstallFacts, restart: RestartFacts | None, with_kubelet: bool, is_refused: bool
) -> None:
    facts = replace(found, node=replace(found.node, restart=restart))
    reasons = [*plan.restart_refusals(facts, plan.steps(facts, with_kubelet))]
    assert [each.check for each in reasons] == (["kubelet-restart"] if is_refused else [])
    assert all("the Node offers 475m" in each.sentence and "--force" in each.remedy for each in reasons)
    assert ("restart" in view.head(facts)) == (restart is not None)


def test_the_plan_in_words(found: InstallFacts, tmp_path: Path) -> None:
    steps = plan.steps(found, with_kubelet=True)
    (tmp_path / "usr/bin/koordctl").symlink_to("/opt/koord/bin/koordctl")
    (tmp_path / "etc/systemd/system/koord-qosd.service").write_text("[Unit]\n")
    look = World(tmp_path).machine().disk.look
    short, full = (view.plan(steps, look, full).splitlines() for full in (False, True))
    assert "   keep /usr/bin/koordctl -> /opt/koord/bin/koordctl" in short
    assert "   make /usr/bin/koord-qosd -> /opt/koord/bin/koord-qosd" in short
    assert "   replace /etc/systemd/system/koord-qosd.service" in short
    assert "   make /etc/systemd/system/kubelet.service.d/90-koord.conf" in short
    assert short[-2:] == ["   $ systemctl daemon-reload", "   $ systemctl restart kubelet.service"]
    assert set(short) <= set(full)
    assert "   | --- /etc/systemd/system/koord-qosd.service" in full
    assert "   | +++ /etc/systemd/system/kubelet.service.d/90-koord.conf" in full
    assert [line for line in full if "| +ExecStart=/usr/bin/kubelet $KUBELET_CONFIG_ARGS --node-ip=%i" in line]


def test_undoing_in_words(world: World) -> None:
    (world.root / "usr/bin/koordctl").symlink_to("/srv/bin/koordctl")
    machine = world.machine()
    install(machine, plan.steps(facts(world.root, Flavour.VENV), with_kubelet=True))
    record = records.load(machine.disk)
    assert record is not None
    shown = view.undoing(record.steps, machine.disk.look).splitlines()
    assert [line for line in shown if line[0].isdigit()] == [
        "1. Put kubelet (kubelet.service) back on the runtime, restart it if it runs, and wait until it is well",
        "2. Stop koord-runtime-proxy.socket, koord-runtime-proxy.service",
        "3. Stop koord-qosd.service",
        "4. Put back every kernel file that Koord holds",
        "5. Put back what was in the place of 7 files and links",
        "6. Put back what was in the place of 3 files and links",
        "7. Remove what Koord made while it ran",
    ]
    assert shown[1] == "   remove /etc/systemd/system/kubelet.service.d/90-koord.conf"
    assert "   put back /usr/bin/koordctl -> /srv/bin/koordctl" in shown
    assert shown[-1] == "   remove /etc/koord, if it is empty"
