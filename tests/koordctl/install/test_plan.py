"""The plan: what follows from which facts, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from koordctl.doctor.facts import RestartFacts, RuntimeFacts
from koordctl.host.unitfile import Unit, UnitFile
from koordctl.install import plan
from koordctl.install import record as records
from koordctl.install.facts import Flavour, NodeFacts, Programs
from koordctl.install.files import File, Link
from koordctl.install.steps import Sandbox
from koordctl.views import install as view
from tests.koordctl.install.runs import install
from tests.koordctl.install.world import PROXY_SOCKET, World, doctor, facts

PROXY_EXEC = "/usr/bin/koord-runtime-proxy --koord-runtimeproxy-endpoint=/run/koord-runtimeproxy/runtimeproxy.sock"


@pytest.fixture
def found(tmp_path: Path) -> NodeFacts:
    return facts(World(tmp_path).root)


def files(found: NodeFacts) -> dict[str, str]:
    return {
        place.path: place.text if isinstance(place, File) else f"-> {place.target}"
        for place in plan.places(found, with_kubelet=True)
    }


def of_runtime(found: NodeFacts, socket: str, driver: str = "systemd") -> NodeFacts:
    runtime = RuntimeFacts("some", "1", socket, True, cgroup_driver=driver)
    return replace(found, doctor=replace(found.doctor, runtime=runtime))


def test_files_of_a_virtual_environment(found: NodeFacts) -> None:
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
    places = plan.places(facts(World(tmp_path).root, Flavour.PACKAGE), with_kubelet=False)
    assert places == tuple(
        Link(f"/etc/systemd/system/{target}.wants/{name}", f"/usr/lib/systemd/system/{name}")
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
def test_another_runtime(found: NodeFacts, socket: str, proxy: str | None, daemon: str | None) -> None:
    written = files(of_runtime(found, socket))
    for unit, expected in (("koord-runtime-proxy", proxy), ("koord-qosd", daemon)):
        text = written.get(f"/etc/systemd/system/{unit}.service.d/50-koord-node.conf")
        assert (text and text.partition("\n")[2]) == expected


def test_the_sockets_group_and_kubelets_directory(found: NodeFacts) -> None:
    written = files(replace(found, socket_group="cri", root_dir="/srv/kubelet"))
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
def test_rules(found: NodeFacts, policy: str, rules: str, text: str | None) -> None:
    node = doctor(cpu_manager_policy=policy)
    node = replace(node, koord=replace(node.koord, rules_file=rules))
    assert files(replace(found, doctor=node)).get("/etc/koord/qosd-rules.yaml") == text


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
    found: NodeFacts, driver: str, tier: str, parent: str, cgroup: str
) -> None:
    node = replace(found.doctor, cgroup=replace(found.doctor.cgroup, driver=driver))
    steps = plan.steps(replace(found, doctor=node, tier=tier), with_kubelet=True)
    (sandbox,) = (step for step in steps if isinstance(step, Sandbox))
    assert (sandbox.parent, sandbox.cgroup) == (parent, cgroup)


def unit(command: str) -> Unit:
    return Unit(
        "kubelet.service", (UnitFile("/etc/systemd/system/kubelet.service", f"[Service]\nExecStart={command}"),)
    )


@pytest.mark.parametrize(
    ("changed", "sentences"),
    [
        ({}, []),
        ({"user": 1000}, ["only root can install"]),
        ({"programs": Programs(Flavour.VENV, "/x", "/y", problem="no program")}, ["no program"]),
        ({"kubelet_unit": None}, ["there is no unit kubelet.service"]),
        (
            {"kubelet_unit": unit("/bin/sh -c kubelet")},
            ["kubelet.service starts /bin/sh, not kubelet itself, so its endpoints cannot be set in a drop-in"],
        ),
        (
            {"endpoint": f"unix:///var{PROXY_SOCKET}"},
            [f"kubelet is pointed at {PROXY_SOCKET} already, not by a drop-in of Koord's: see its flags"],
        ),
        (
            {"doctor": doctor(running=False), "user": 1000},
            ["no kubelet is running, so its flags cannot be read", "only root can install"],
        ),
    ],
)
def test_refusals(found: NodeFacts, changed: dict[str, object], sentences: list[str]) -> None:
    reasons = plan.refusals(replace(found, **changed), True, ())  # type: ignore[arg-type]
    assert [each.sentence for each in reasons] == sentences
    assert all(each.remedy for each in reasons)


def test_without_kubelet_only_the_rest_is_refused(found: NodeFacts) -> None:
    changed = replace(found, doctor=doctor(running=False), kubelet_unit=None)
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
    found: NodeFacts, restart: RestartFacts | None, with_kubelet: bool, is_refused: bool
) -> None:
    facts = replace(found, doctor=replace(found.doctor, restart=restart))
    reasons = [*plan.of_the_restart(facts, plan.steps(facts, with_kubelet))]
    assert [each.check for each in reasons] == (["kubelet-restart"] if is_refused else [])
    assert all("the Node offers 475m" in each.sentence and "--force" in each.remedy for each in reasons)
    assert ("restart" in view.head(facts)) == (restart is not None)


def test_the_plan_in_words(found: NodeFacts, tmp_path: Path) -> None:
    steps = plan.steps(found, with_kubelet=True)
    (tmp_path / "usr/bin/koordctl").symlink_to("/opt/koord/bin/koordctl")
    (tmp_path / "etc/systemd/system/koord-qosd.service").write_text("[Unit]\n")
    look = World(tmp_path).host().disk.look
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
    host = world.host()
    install(host, plan.steps(facts(world.root, Flavour.VENV), with_kubelet=True))
    record = records.load(host.disk)
    assert record is not None
    shown = view.undoing(record.steps, host.disk.look).splitlines()
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
