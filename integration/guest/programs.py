"""Koord's programs in a guest straight from the payload, for tests that are not about installing.

Units as shipped, in /etc/systemd/system; /usr/bin/koord-* run the checkout's packages.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from integration.guest import payload
from integration.guest.guest import Guest

MODULES = {
    "koord-runtime-proxy": "runtimeproxy.__main__",
    "koord-qosd": "qosd.__main__",
    "koordctl": "koordctl.__main__",
}
UNITS = ("koord-runtime-proxy.socket", "koord-runtime-proxy.service", "koord-qosd.service")
SOCKET = "/run/koord-runtimeproxy/runtimeproxy.sock"
_PROXY_METRICS = "/run/koord/runtime-proxy-metrics.sock"
_SCRAPE = """
import socket, sys
asker = socket.socket(socket.AF_UNIX)
asker.connect(sys.argv[1])
asker.sendall(b"GET /metrics HTTP/1.0\\r\\n\\r\\n")
sys.stdout.write(asker.makefile(encoding="utf-8").read())
"""
_CONTAINERD_2 = """\
[Service]
Environment=PATH=/opt/containerd2/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=
ExecStart=/opt/containerd2/bin/containerd
"""


def put(guest: Guest) -> None:
    """Make the programs and units; nothing is started."""
    for program, module in MODULES.items():
        guest.put(f"/usr/bin/{program}", script(payload.PYTHONPATH.split(":"), module), 0o755)
    units = " ".join(f"{payload.ROOT}/repo/systemd/{unit}" for unit in (*UNITS, "koord.slice"))
    guest.sh(f"cp {units} /etc/systemd/system/ && systemctl daemon-reload")


def put_toys(guest: Guest) -> None:
    """From its next start koord-qosd has the toy strategies of ``integration.node.toys`` besides its own."""
    guest.put("/usr/bin/koord-qosd", script(payload.PYTHONPATH.split(":"), "integration.node.toys"), 0o755)


def start(guest: Guest) -> None:
    """qosd, then the proxy; both serve when this returns."""
    guest.do("systemctl", "start", *UNITS[::-1])


def script(paths: Sequence[str], module: str, python: str = "/usr/bin/python3 -BsE") -> str:
    """The text of a program that runs ``main`` of ``module``, found in ``paths``, by the command ``python``."""
    lines = (f"#!{python}", "import sys", f"sys.path[1:1] = {list(paths)!r}")
    return "\n".join((*lines, f"from {module} import main", "sys.exit(main())", ""))


def proxy_metrics(guest: Guest) -> list[str]:
    """The lines of the proxy's status page; none while it does not answer."""
    return guest.run("python3", "-c", _SCRAPE, _PROXY_METRICS).stdout.splitlines()


def acting(guest: Guest) -> list[str]:
    """The front ends of koord-qosd by which values come to new containers."""
    ends = json.loads(guest.do("koordctl", "node", "-o", "json"))["front_ends"]
    return [end["name"] for end in ends if end["acting"]]


def use_containerd_2(guest: Guest) -> None:
    """From now on the guest's containerd is 2.x; its containers stay."""
    guest.sh("mkdir -p /etc/systemd/system/containerd.service.d")
    guest.put("/etc/systemd/system/containerd.service.d/90-two.conf", _CONTAINERD_2)
    guest.sh("systemctl daemon-reload && systemctl restart containerd.service")
