"""Versions of the proxy that take over from each other under kubelet's call mix, by SIGUSR2 through systemd.

Every call that ends within the drain succeeds at its first attempt; the events stream of containerd 2 is cut at the end
of each drain and opened again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from integration.guest import koordnode, payload, programs
from integration.guest.guest import Guest
from integration.guest.inside.faults import PROXY

pytestmark = pytest.mark.soak

PROGRAM = "/usr/bin/koord-runtime-proxy"
VERSIONS = "/opt/koord-versions"
DRAIN_S = 25
PROXY_DROP_IN = f"""\
[Service]
ExecStart=
ExecStart={PROGRAM} --koord-runtimeproxy-endpoint={programs.SOCKET} --drain-timeout={DRAIN_S}s
"""
SCOPES = "/sys/fs/cgroup/kubepods.slice/*/*/cri-containerd-*.scope"
STOP, OUTCOME = "/run/koord-load.stop", "/run/koord-load.json"
BACK_S = 600.0


@pytest.fixture(scope="module")
def node(guest: Guest) -> Guest:
    """Version 1 runs, on containerd 2."""
    koordnode.set_up_for_load(guest)
    guest.sh(f"mkdir -p {VERSIONS} /etc/systemd/system/{PROXY}.d")
    guest.put(f"/etc/systemd/system/{PROXY}.d/90-drain.conf", PROXY_DROP_IN)
    for version in ("1", "2", "3"):
        lay_out(guest, version)
    choose(guest, "1")
    programs.use_containerd_2(guest)
    programs.start(guest)
    return guest


def test_upgrades_and_a_downgrade_lose_no_call(node: Guest) -> None:
    with under_load(node) as outcome:
        pids = [node.main_pid(PROXY)]
        for version in ("2", "3", "1"):
            choose(node, version)
            hand_over(node)
            node.wait(lambda: node.main_pid(PROXY) not in pids, f"version {version}", BACK_S)
            pids.append(node.main_pid(PROXY))
            node.wait(lambda version=version: answers(node) == version, f"{version} to answer", BACK_S)  # type: ignore[misc]
            assert node.active(PROXY)
        for pid in pids[:-1]:
            node.wait(lambda pid=pid: not node.exists(f"/proc/{pid}"), "the drain's end", BACK_S)  # type: ignore[misc]
    check(outcome)
    assert outcome["streams"]["opened"] >= 2
    assert node.do("systemctl", "show", "--property=NRestarts", "--value", PROXY).strip() == "0"


def test_a_successor_that_cannot_start_changes_nothing(node: Guest) -> None:
    before, version = node.main_pid(PROXY), answers(node)
    node.sh(f"printf '#!/bin/sh\\nexit 3\\n' > {VERSIONS}/broken && chmod 755 {VERSIONS}/broken")
    with under_load(node) as outcome:
        node.do("ln", "-sfn", f"{VERSIONS}/broken", PROGRAM)
        hand_over(node)
        node.wait(lambda: "upgrade failed" in node.journal(PROXY), "the refusal", BACK_S)
        assert node.active(PROXY)
        assert (node.main_pid(PROXY), answers(node)) == (before, version)
    check(outcome)
    assert outcome["streams"]["opened"] == 1
    choose(node, "2")
    hand_over(node)
    node.wait(lambda: answers(node) == "2", "the next attempt", BACK_S)


def lay_out(guest: Guest, version: str) -> None:
    """A directory of its own for a version, as the package has it."""
    home = f"{VERSIONS}/{version}"
    guest.sh(
        f"mkdir {home} && cp -a {payload.ROOT}/repo/koord {payload.ROOT}/repo/runtimeproxy {home}/"
        f" && echo '__version__ = \"{version}\"' > {home}/koord/__init__.py"
        f" && rm -f {home}/koord/__pycache__/__init__.*"
    )
    script = programs.script([home, f"{payload.ROOT}/lib"], "runtimeproxy.__main__")
    guest.put(f"{home}/{PROGRAM.rpartition('/')[2]}", script, 0o755)


def choose(guest: Guest, version: str) -> None:
    """What is started from now on."""
    guest.sh(f"ln -sfn {VERSIONS}/{version}/koord-runtime-proxy {PROGRAM}.new && mv -T {PROGRAM}.new {PROGRAM}")


def hand_over(guest: Guest) -> None:
    guest.do("systemctl", "kill", "--signal=USR2", "--kill-whom=main", PROXY)


def answers(guest: Guest) -> str:
    """The version on the status page; "" while there is none."""
    page = programs.proxy_metrics(guest)
    lines = [line for line in page if line.startswith("koord_runtimeproxy_build_info")]
    return lines[0].split('"')[1] if lines else ""


@contextmanager
def under_load(guest: Guest) -> Iterator[dict[str, Any]]:
    """The call mix for the time of the block; the outcome is there afterwards."""
    unit, outcome = "koord-load.service", dict[str, Any]()
    guest.do("rm", "-f", STOP, OUTCOME)
    guest.do(
        *("systemd-run", f"--unit={unit}", f"--setenv=PYTHONPATH={payload.PYTHONPATH}"),
        *("python3", "-m", "integration.guest.inside.load", STOP, OUTCOME),
    )
    try:
        guest.wait(lambda: guest.run("sh", "-c", f"ls -d {SCOPES}").returncode == 0, "the first pod", BACK_S)
        yield outcome
    finally:
        guest.do("touch", STOP)
    guest.wait(lambda: guest.exists(OUTCOME) or not guest.active(unit), "the outcome", BACK_S)
    if not guest.exists(OUTCOME):
        raise AssertionError(guest.journal(unit))
    outcome.update(json.loads(guest.text(OUTCOME)))


def check(outcome: Mapping[str, Any]) -> None:
    """No call was lost; a stream ended only by being cut, and was opened again."""
    tally, streams = outcome["tally"], outcome["streams"]
    print(f"  {outcome['summary']}; streams {streams}")
    assert outcome["wrong"] == []
    assert tally["interrupted"] == {}
    assert tally["refused"] == {}
    assert streams["endings"] == ({"cut": streams["opened"] - 1} if streams["opened"] > 1 else {})
    assert tally["pods"] > 0
