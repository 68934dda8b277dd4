"""``koordctl install`` from a virtual environment on a booted node: dry run, failure, kill, repetition, and no trace.

Each test ends with the node as it began, which is compared as a whole; pods run on meanwhile. (``test_no_trace`` does
the same with the Debian package, against a node that never saw Koord.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from integration.guest import payload, pods, traces
from integration.guest.channel import Done
from integration.guest.guest import Guest, GuestError
from integration.guest.programs import MODULES, SOCKET, UNITS, script
from integration.guest.traces import Snapshot
from integration.kubelet.staticpods import StaticPod
from koordctl.node import grants

pytestmark = pytest.mark.soak

ENVIRONMENT = "/opt/koord"
BATCH = StaticPod(name="plain", qos="", native={}, annotations={})
BROKEN = "/run/systemd/system/koord-runtime-proxy.service.d"
RECORD = "/var/lib/koord/install/record.jsonl"
RULES = "/etc/koord/qosd-rules.yaml"
MIN_FREE, SCALE = "min_free_kbytes", "watermark_scale_factor"
SYSTEM = "{minFreeKbytesFactor: 200, watermarkScaleFactor: 42}"
CPUSET = "/cpuset.cpus"
ALL_CPUS = "0-1\n"
INSTALL_S = 540.0
SAME_S = 300.0


@pytest.fixture(scope="module")
def node(guest: Guest) -> Guest:
    """The guest with Koord's programs in a virtual environment, and a pod that runs."""
    site = f"{ENVIRONMENT}/lib/python3.11/site-packages"
    guest.sh(f"""
        python3 -m venv --without-pip {ENVIRONMENT}
        printf '%s\\n' {payload.PYTHONPATH.replace(":", " ")} > {site}/koord.pth
        mkdir -p {ENVIRONMENT}/share/koord
        cp -r {payload.ROOT}/repo/systemd {ENVIRONMENT}/share/koord
    """)
    for program, module in MODULES.items():
        guest.put(f"{ENVIRONMENT}/bin/{program}", script([], module, f"{ENVIRONMENT}/bin/python"), 0o755)
    pods.put(guest, [BATCH])
    guest.do("systemctl", "start", "kubelet")
    pods.wait_ready(guest, [BATCH.name])
    guest.do("systemctl", "daemon-reload")  # sets memory.oom.group of every container to 0, whoever asks for it
    return guest


@pytest.fixture(autouse=True)
def no_trace(node: Guest) -> Iterator[None]:
    """The node is the same before and after each test, once kubelet has put right what it puts right by itself."""
    before, left = taken(node), {"": ("", "")}

    def same() -> bool:
        left.clear()
        left.update(unexplained(before, taken(node)))
        return not left

    yield
    pods.wait_ready(node, [BATCH.name])
    with contextlib.suppress(GuestError):
        node.wait(same, "the node to be as before", SAME_S)
    assert not left, "\n".join(f"{path}: {values[0]!r:.300} -> {values[1]!r:.300}" for path, values in left.items())


def taken(node: Guest) -> Snapshot:
    """A snapshot in which systemd has answered: on a busy machine its bus gives up after a while."""
    return node.wait(lambda: found if (found := traces.take(node)).rest["units"] else None, "systemd's answer", SAME_S)


def unexplained(before: Snapshot, after: Snapshot) -> dict[str, tuple[str, str]]:
    """The differences, without CPU sets of running containers, which the kernel lets no program empty again."""
    found = traces.unexplained(traces.differences(before, after))
    shown = {path: (str(old), str(new)) for path, (old, new) in found.items()}
    return {path: each for path, each in shown.items() if not (path.endswith(CPUSET) and each == ("\n", ALL_CPUS))}


def koordctl(node: Guest, *arguments: str) -> Done:
    done = node.run(f"{ENVIRONMENT}/bin/koordctl", *arguments, timeout_s=INSTALL_S)
    print(f"koordctl {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def endpoint(node: Guest) -> str:
    arguments = node.text(f"/proc/{node.main_pid('kubelet')}/cmdline").split("\0")
    return [each for each in arguments if each.startswith("--container-runtime-endpoint=")][-1].partition("=")[2]


def test_a_dry_run_shows_everything_and_changes_nothing(node: Guest) -> None:
    done = koordctl(node, "install", "--dry-run")
    assert done.returncode == 0
    assert "   make /etc/systemd/system/kubelet.service.d/90-koord.conf" in done.stdout
    assert "containerd 1.6" in done.stdout


def test_a_proxy_that_cannot_start_is_rolled_back_before_kubelet_is_touched(node: Guest) -> None:
    kubelet = node.main_pid("kubelet")
    node.do("mkdir", "-p", BROKEN)
    node.put(f"{BROKEN}/broken.conf", "[Service]\nExecStartPre=/bin/false\n")
    done = koordctl(node, "install", "--yes")
    node.sh(f"rm -r {BROKEN} && systemctl daemon-reload")
    assert done.returncode == 4
    assert "Everything was rolled back." in done.stderr
    assert node.main_pid("kubelet") == kubelet


def test_install_again_and_uninstall(node: Guest) -> None:
    assert koordctl(node, "install", "--yes").returncode == 0
    assert endpoint(node) == f"unix://{SOCKET}"
    assert [node.active(unit) for unit in UNITS] == [True] * len(UNITS)
    assert node.do("systemctl", "is-enabled", *UNITS).split() == ["enabled"] * len(UNITS)
    for unit in UNITS:
        assert "turns on the CPU keep their length" not in node.journal(unit), "the unit's sandbox forbids the call"
    assert "nothing to change" in koordctl(node, "install", "--yes").stdout
    assert koordctl(node, "uninstall", "--yes").returncode == 0
    assert endpoint(node) == "unix:///run/containerd/containerd.sock"
    assert "is not installed" in koordctl(node, "uninstall", "--yes").stdout


def settings(node: Guest) -> dict[str, int]:
    return {name: int(node.text(f"/proc/sys/vm/{name}")) for name in (MIN_FREE, SCALE)}


def put_rules(node: Guest, system_config: bool) -> None:
    """A new file in the old one's place, as an editor makes it."""
    features = f"{{SystemConfig: {str(system_config).lower()}}}"
    node.put(f"{RULES}.new", f"node: {{features: {features}}}\nspec:\n  systemStrategy: {SYSTEM}\n")
    node.do("mv", f"{RULES}.new", RULES)


def test_a_feature_that_needs_more_than_the_unit_allows(node: Guest) -> None:
    """Only a booted systemd shows that a single file below a read-only /proc/sys can be made writable."""
    before, capacity_kb = settings(node), int(node.sh("awk '/^MemTotal/ {print $2}' /proc/meminfo"))
    wanted = {MIN_FREE: capacity_kb * 200 // 10000, SCALE: 42}
    node.do("mkdir", "-p", "/etc/koord")
    put_rules(node, system_config=False)
    assert koordctl(node, "install", "--yes").returncode == 0
    assert not node.exists(grants.DROP_IN)
    put_rules(node, system_config=True)
    node.wait(lambda: "run koordctl install" in koordctl(node, "node").stderr, "koord-qosd to say what it lacks")
    assert settings(node) == before, "the unit alone lets it write none of them"
    assert "WARN    grants " in koordctl(node, "doctor").stdout
    assert koordctl(node, "install", "--yes").returncode == 0
    node.wait(lambda: settings(node) == wanted, "the settings of NodeSLO")
    allowed = f"ReadWritePaths=-/proc/sys/vm/{MIN_FREE} -/proc/sys/vm/{SCALE}"
    assert node.text(grants.DROP_IN).count(allowed) == 1
    pid = node.main_pid("koord-qosd")
    assert node.run("nsenter", "-t", str(pid), "-m", "test", "-w", "/proc/sys/vm/swappiness").returncode == 1
    assert "ok      grants " in koordctl(node, "doctor").stdout
    put_rules(node, system_config=False)
    node.wait(lambda: settings(node) == before, "the settings to be what they were")
    assert koordctl(node, "install", "--yes", "--only-grants").returncode == 0
    assert not node.exists(grants.DROP_IN)
    assert koordctl(node, "uninstall", "--yes").returncode == 0
    node.do("rm", "-r", "/etc/koord")


def test_uninstalling_puts_the_kernels_settings_back(node: Guest) -> None:
    before = settings(node)
    node.do("mkdir", "-p", "/etc/koord")
    put_rules(node, system_config=True)
    assert koordctl(node, "install", "--yes").returncode == 0
    node.wait(lambda: settings(node)[SCALE] == 42, "the settings of NodeSLO")
    assert koordctl(node, "uninstall", "--yes").returncode == 0
    assert (settings(node), node.exists(grants.DROP_IN)) == (before, False)
    node.do("rm", "-r", "/etc/koord")


def test_killed_at_its_last_step_and_run_again(node: Guest) -> None:
    """The drop-in may be there, or kubelet be restarting, when the installer dies."""
    killed = node.run(
        "bash", "-c",
        f"{ENVIRONMENT}/bin/koordctl install --yes > /dev/null & "
        f"until grep -qs '\"type\":\"kubelet\"' {RECORD}; do sleep 0.1; done; sleep 1; kill -KILL $!",
        timeout_s=INSTALL_S,
    )  # fmt: skip
    assert killed.returncode == 0
    assert "An earlier run was cut off" in koordctl(node, "install", "--yes").stdout
    assert endpoint(node) == f"unix://{SOCKET}"
    assert koordctl(node, "uninstall", "--yes").returncode == 0
