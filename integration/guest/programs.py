"""Koord's programs in a guest straight from the payload, for tests that are not about installing.

Units as shipped, in /etc/systemd/system; /usr/bin/koord-* run the checkout's packages.
"""

from __future__ import annotations

from integration.guest import payload
from integration.guest.guest import Guest

MODULES = {"koord-runtime-proxy": "runtimeproxy", "koord-qosd": "qosd", "koordctl": "koordctl"}
UNITS = ("koord-runtime-proxy.socket", "koord-runtime-proxy.service", "koord-qosd.service")
SOCKET = "/run/koord-runtimeproxy/runtimeproxy.sock"


def put(guest: Guest) -> None:
    """Make the programs and units; nothing is started."""
    for program, module in MODULES.items():
        guest.put(f"/usr/bin/{program}", _script(module), 0o755)
    units = " ".join(f"{payload.ROOT}/repo/systemd/{unit}" for unit in UNITS)
    guest.sh(f"cp {units} /etc/systemd/system/ && systemctl daemon-reload")


def start(guest: Guest) -> None:
    """qosd, then the proxy; both serve when this returns."""
    guest.do("systemctl", "start", *UNITS[::-1])


def _script(module: str) -> str:
    paths = payload.PYTHONPATH.split(":")
    lines = ("#!/usr/bin/python3 -BsE", "import sys", f"sys.path[1:1] = {paths!r}")
    return "\n".join((*lines, f"from {module}.__main__ import main", "sys.exit(main())", ""))
