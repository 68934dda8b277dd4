"""koord-manager's flags: upstream's names, and what is refused."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from koord.kube.kind import Key
from koord.service.options import OptionError
from koord_manager.options import NODE_MUTATING, POD_MUTATING, PROGRAM, WEBHOOK_FRAMEWORK, Options
from koord_manager.view import ClusterView

NOBODY = cast(Any, None)


def options(*argv: str) -> Options:
    return PROGRAM.load(PROGRAM.parse(list(argv)))


def test_upstreams_spelling() -> None:
    read = options("-enable-leader-election=false", "--config-namespace=koord", "--rest-config-qps=100")
    assert (read.enable_leader_election, read.lease_namespace, read.rest_config_qps) == (False, "koord", 100.0)
    assert options("--leader-election-namespace=elsewhere").lease_namespace == "elsewhere"


def test_flags_of_upstream_that_a_deployment_may_have() -> None:
    read = options("-v=4", "--logtostderr", "--sync-period=10h", "--health-probe-addr=:8000")
    assert (read.effective_log_level, read.health_probe_addr) == ("debug", ":8000")
    assert options("--v=3").effective_log_level == "info"


@pytest.mark.parametrize(
    ("gates", "gate", "is_on"),
    [
        ("", POD_MUTATING, True),
        ("", NODE_MUTATING, False),
        ("AllAlpha=true", NODE_MUTATING, True),
        ("AllAlpha=true,NodeMutatingWebhook=false", NODE_MUTATING, False),
        ("AllBeta=false", WEBHOOK_FRAMEWORK, False),
    ],
)
def test_gates(gates: str, gate: str, is_on: bool) -> None:
    assert options(f"--feature-gates={gates}").is_on(gate) is is_on


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--feature-gates=NoSuchGate=true", "NoSuchGate"),
        ("--rest-config-qps=0", "must be more than 0"),
        ("--webhook-port=70000", "must be a port"),
        ("--metrics-addr=8080", "must be host:port or :port"),
        ("--nodelink-endpoint=9877", "must be host:port or :port"),
        ("--advertise-address=10.0.0.1", "must be host:port"),
        ("--no-such-flag=1", "no-such-flag"),
    ],
)
def test_what_is_wrong_is_named(flag: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        options(flag)


@pytest.mark.parametrize(
    ("argv", "schedulers"),
    [
        ([], {"system:serviceaccount:koordinator-system:koord-scheduler", "system:kube-scheduler"}),
        (["--config-namespace=x"], {"system:serviceaccount:x:koord-scheduler", "system:kube-scheduler"}),
        (["--config-namespace=x", "--scheduler-users=a,b"], {"a", "b"}),
    ],
)
def test_the_scheduler_is_that_of_the_installation(argv: list[str], schedulers: set[str]) -> None:
    read = options(*argv)
    namespace, users = read.config_namespace, read.scheduler_users
    view = ClusterView(NOBODY, Key(namespace, "none"), namespace, {}, time.monotonic, time.time, users)
    assert view.admission().scheduler_users == schedulers
