"""The options of every program that asks a cluster, and of every cluster component; a program's own class extends them.

A program whose users know a flag by another name, or with another default, declares the field again.
"""

from __future__ import annotations

from dataclasses import dataclass

from koord.model.locations import NAMESPACE
from koord.service import optionvalues
from koord.service.log import LEVELS
from koord.service.options import option

DEBUG_VERBOSITY = 4


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """An empty string is none."""

    # fmt: off
    kubeconfig: str = option("", "how to reach the API server; '' = as kubectl, or as the pod that this is")
    context: str = option("", "the kubeconfig's context; '' = its current one")
    config_namespace: str = option(NAMESPACE, "the component's namespace")
    log_level: str = option("info", "debug, info, warning or error", choices=LEVELS)
    # fmt: on


@dataclass(frozen=True, slots=True)
class ComponentOptions(ClusterOptions):
    """An empty string is none."""

    # fmt: off
    enable_leader_election: bool = option(True, "let one replica lead; off: this one is alone")
    leader_election_namespace: str = option("", "the namespace of the Lease; '' = --config-namespace")
    rest_config_qps: float = option(30.0, "requests a second to the API server",
        bounds=(lambda rate: rate > 0, "must be more than 0"))
    rest_config_burst: int = option(50, "requests at once above that rate",
        bounds=(lambda burst: burst > 0, "must be more than 0"))
    metrics_addr: str = option("127.0.0.1:8080",
        "/metrics, /healthz and /readyz: host:port, or :port for every address; '' = none",
        parse=optionvalues.optional_listen_address)
    metrics_token_file: str = option("", "bearer token that /metrics wants")
    health_probe_addr: str = option("",
        "/healthz and /readyz at an address of their own, too, which scrapes cannot fill; '' = none",
        parse=optionvalues.optional_listen_address)
    v: int = option(0, f"upstream's verbosity: from {DEBUG_VERBOSITY} on as --log-level=debug")
    logtostderr: bool = option(True, "has no effect: logs go to standard error")
    # fmt: on

    @property
    def effective_log_level(self) -> str:
        return "debug" if self.v >= DEBUG_VERBOSITY else self.log_level

    @property
    def lease_namespace(self) -> str:
        return self.leader_election_namespace or self.config_namespace
