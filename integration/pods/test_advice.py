"""koord-qosd only wants to know of sandboxes: what a cgroup holds is the same as if each had waited for its answer."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from integration.harness import cgroups, proxy
from integration.harness.containerd import Containerd
from integration.harness.cri import RUNTIME, Cri
from integration.harness.pods import Container, Pod, container_config, sandbox_config
from integration.peers.koordlet import BATCH_CPU, BATCH_MEMORY, EXTENDED_RESOURCES, QOS
from koord.pb.cri import api_pb2 as pb

MIB = 1 << 20
COUNTERS = ("usage", "failcnt", ".pressure")  # a write resets them, or asks to be told of their growth
KEYS = ("advice", "await-handlers")
BATCH = {"requests": {BATCH_CPU: "500", BATCH_MEMORY: "64Mi"}, "limits": {BATCH_CPU: "1000", BATCH_MEMORY: "64Mi"}}
Values = Mapping[str, str]


def pods(root: str) -> list[Pod]:
    batch = {EXTENDED_RESOURCES: json.dumps({"containers": {"main": BATCH}})}
    limited = Container("main", cpu_limit_milli=500, memory_limit_bytes=128 * MIB)
    return [
        Pod("be", (Container("main"),), labels={QOS: "BE"}, annotations=batch, cgroup_root=root),
        Pod("ls", (limited,), labels={QOS: "LS"}, cgroup_root=root),
        Pod("plain", (limited,), cgroup_root=root),
    ]


def values(pod: Pod, names: Mapping[str, str]) -> Values:
    """What every file of the pod's cgroups holds that can be read and written; ``names``: directories by role."""
    found: dict[str, str] = {}
    for controller, mount in cgroups.hierarchies().items():
        top = mount / pod.cgroup_parent.strip("/")
        for directory, _, files in os.walk(top):
            where = str(Path(directory).relative_to(top))
            for file in files:
                path = Path(directory, file)
                if path.stat().st_mode & 0o600 == 0o600:
                    found[f"{controller}:{names.get(where, where)}/{file}"] = _text(path)
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        return f"errno {error.errno}"


def life(socket: Path, pod: Pod) -> Values:
    """The pod with its one container, started through ``socket``, looked at, and removed."""
    cgroups.make_pod(pod)
    with Cri(socket) as cri:
        sandbox = cri.run_pod(pod)
        request = pb.CreateContainerRequest(
            pod_sandbox_id=sandbox,
            config=container_config(pod, pod.containers[0]),
            sandbox_config=sandbox_config(pod),
        )
        container = cri.call(RUNTIME + "CreateContainer", request, pb.CreateContainerResponse).container_id
        cri.start_container(container)
        try:
            return values(pod, {sandbox: "sandbox", container: "container"})
        finally:
            cri.remove(sandbox)


def round_of(containerd: Containerd, directory: Path, root: str, *, held: bool) -> list[Values]:
    """The values of one pod of each kind, made through a proxy that waits for koord-qosd, or does not."""
    file = directory / "hookserver.d" / "koord-qosd.json"
    file.parent.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        stack.callback(proxy.start_qosd(containerd.socket, directory, file.parent).stop)
        entry = json.loads(file.read_text())
        assert entry["advice"] == ["PreRunPodSandbox"]
        if held:
            file.write_text(json.dumps({key: entry[key] for key in entry if key not in KEYS}))
        stack.callback(proxy.start_proxy(containerd.socket, directory, file.parent).stop)
        found = [life(proxy.socket_of(directory), pod) for pod in pods(root)]
    assert edited_sandboxes(directory) is held
    return found


def edited_sandboxes(directory: Path) -> bool:
    """Does the proxy's log tell of edits of a sandbox's resources?"""
    lines = (directory / "proxy.log").read_text().splitlines()
    return any('object="pod ' in line and "field=cpu_shares" in line for line in lines)


def test_no_value_of_any_cgroup_depends_on_it(
    any_containerd: Containerd, tmp_path: Path, cgroup_root: str, figure: Callable[[str], None]
) -> None:
    first, again, advised = (
        round_of(any_containerd, tmp_path / name, cgroup_root, held=held)
        for name, held in (("first", True), ("again", True), ("advised", False))
    )
    compared = 0
    for one, other, mine in zip(first, again, advised, strict=True):
        equal = {name for name in one if one[name] == other.get(name)}
        settings = {name for name in equal if not any(word in name for word in COUNTERS)}
        assert {name: mine.get(name) for name in settings} == {name: one[name] for name in settings}
        assert mine.keys() == one.keys()
        for role in ("sandbox", "container"):
            assert any(name.endswith(f"{role}/cpu.shares") for name in settings)
            assert any(name.endswith(f"{role}/memory.limit_in_bytes") for name in settings)
        compared += len(settings)
    figure(f"{any_containerd.release.name}: {compared} values of {len(first)} pods do not depend on who was waited for")
