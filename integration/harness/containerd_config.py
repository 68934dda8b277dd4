"""The configuration of a private containerd: nothing of it is shared with a containerd that the machine runs itself.

Two dialects: ``version = 2`` for containerd 1.6 and ``version = 3`` for containerd 2.x. ``restrict_oom_score_adj`` is
for machines where root lacks CAP_SYS_RESOURCE: without it every sandbox would fail there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from integration.harness import images

CNI_PLUGINS = Path("/usr/lib/cni")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where one private containerd keeps its files; all below ``directory``.

    ``bound_at``: where ``directory`` is mounted as well, for those who look for the socket there. ``has_gateway``: pods
    have a way out through the bridge, for which CNI switches IP forwarding on. ``registries``: a directory with a
    hosts.toml for each registry that images are pulled from.
    """

    directory: Path
    bridge: str
    subnet: str
    bound_at: Path | None = None
    has_gateway: bool = False
    registries: Path | None = None

    @property
    def root(self) -> Path:
        return self.directory / "root"

    @property
    def state(self) -> Path:
        return self.directory / "state"

    @property
    def socket(self) -> Path:
        return self.directory / "containerd.sock"

    @property
    def address(self) -> Path:
        """The socket, as containerd itself and its shims know it."""
        return (self.bound_at or self.directory) / self.socket.name

    @property
    def config(self) -> Path:
        return self.directory / "config.toml"

    @property
    def cni(self) -> Path:
        return self.directory / "cni"

    @property
    def nri_socket(self) -> Path:
        return self.directory / "nri.sock"


def write(layout: Layout, version: int) -> None:
    """Write ``config.toml`` in dialect ``version`` (2 or 3) and the CNI conflist."""
    layout.cni.mkdir(parents=True, exist_ok=True)
    (layout.cni / "10-koord.conflist").write_text(json.dumps(_conflist(layout)))
    dialect = _version_2(layout) if version == 2 else _version_3(layout)
    layout.config.write_text(_common(layout, version) + dialect + _registries(layout, version))


def _conflist(layout: Layout) -> dict[str, object]:
    """A bridge, by default with no address of its own: then it needs no IP forwarding. No iptables rule either way."""
    ipam = {
        "type": "host-local",
        "dataDir": str(layout.directory / "ipam"),
        "ranges": [[{"subnet": layout.subnet}]],
        **({"routes": [{"dst": "0.0.0.0/0"}]} if layout.has_gateway else {}),
    }
    plugin = {"type": "bridge", "bridge": layout.bridge, "isGateway": layout.has_gateway, "ipMasq": False, "ipam": ipam}
    return {"cniVersion": "1.0.0", "name": layout.bridge, "plugins": [plugin]}


def _common(layout: Layout, version: int) -> str:
    return f"""\
version = {version}
root = "{layout.root}"
state = "{layout.state}"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
  address = "{layout.address}"

[ttrpc]
  address = "{layout.socket}.ttrpc"

[plugins."io.containerd.internal.v1.opt"]
  path = "{layout.directory / "opt"}"
"""


def _registries(layout: Layout, version: int) -> str:
    if layout.registries is None:
        return ""
    plugin = "io.containerd.grpc.v1.cri" if version == 2 else "io.containerd.cri.v1.images"
    return f'\n[plugins."{plugin}".registry]\n  config_path = "{layout.registries}"\n'


def _version_2(layout: Layout) -> str:
    return f"""
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{images.PAUSE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PLUGINS}"
    conf_dir = "{layout.cni}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "{layout.state / "runc"}"
"""


def _version_3(layout: Layout) -> str:
    return f"""
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{CNI_PLUGINS}"]
    conf_dir = "{layout.cni}"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      Root = "{layout.state / "runc"}"

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{images.PAUSE}"

[plugins."io.containerd.nri.v1.nri"]
  disable = false
  socket_path = "{layout.nri_socket}"
  plugin_path = "{layout.directory / "nri-plugins"}"
  plugin_config_path = "{layout.directory / "nri-conf"}"
"""
