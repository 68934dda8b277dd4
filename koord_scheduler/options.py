"""koord-scheduler's options, with the names that upstream's flags have where it has them."""

from __future__ import annotations

from dataclasses import dataclass

from koord.cluster.options import ComponentOptions
from koord.service import optionvalues
from koord.service.options import Program, Style, option

NAME = "koord-scheduler"


@dataclass(frozen=True, slots=True)
class Options(ComponentOptions):
    """An empty string is none."""

    # fmt: off
    seed: int = option(0, "decides among nodes that are equally good")
    rest_config_qps: float = option(1000.0, "requests a second to the API server, besides bindings",
        bounds=(lambda rate: rate > 0, "must be more than 0"))
    rest_config_burst: int = option(2000, "requests at once above that rate",
        bounds=(lambda burst: burst > 0, "must be more than 0"))
    debug_scores: int = option(0, "log so many of the best nodes for each pod, with their scores",
        bounds=(lambda count: count >= 0, "must not be below 0"), short="s")
    debug_filters: bool = option(False, "log each node that is rejected for a pod, and why", short="f")
    cluster_state: bool = option(True, "go by what nodes tell koord-manager, too, which is fresher than NodeMetrics")
    service_account: str = option(NAME, "the account that this is, in --config-namespace, as koord-manager knows it")
    metrics_addr: str = option("127.0.0.1:10251",
        "/metrics, /healthz and /readyz: host:port, or :port for every address; '' = none",
        parse=optionvalues.optional_listen_address)
    # fmt: on


PROGRAM = Program(
    NAME,
    "Places pods on nodes.",
    Options,
    Style.GO,
    config_help="Kubernetes' KubeSchedulerConfiguration, YAML or JSON; without it one profile, koord-scheduler",
)
