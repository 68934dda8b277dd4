"""koord-manager's options, with the names that upstream's flags have; also keys of ``--config`` (YAML)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from koord.model import featuregates
from koord.model.admission import gates as admission_gates
from koord.model.featuregates import Gate
from koord.model.sloconfig.loading import CONFIG_MAP_NAME
from koord.service import optionvalues
from koord.service.log import LEVELS
from koord.service.options import GO, Program, option

WEBHOOK_FRAMEWORK = "WebhookFramework"
POD_MUTATING, POD_VALIDATING = "PodMutatingWebhook", "PodValidatingWebhook"
NODE_MUTATING, CONFIG_MAP_VALIDATING = "NodeMutatingWebhook", "ConfigMapValidatingWebhook"

GATES: Mapping[str, Gate] = {
    WEBHOOK_FRAMEWORK: Gate(True, "serve webhooks and keep their certificates"),
    POD_MUTATING: Gate(True, "/mutate-pod"),
    POD_VALIDATING: Gate(True, "/validate-pod"),
    NODE_MUTATING: Gate(False, "/mutate-node-status"),
    CONFIG_MAP_VALIDATING: Gate(False, "/validate-configmap"),
    **admission_gates.GATES,
}
"""By name."""


def feature_gates(text: str) -> Mapping[str, bool]:
    """``Name=true,Other=false``. Raises ValueError for a name that is no gate's."""
    return featuregates.checked(optionvalues.switches(text), GATES)


@dataclass(frozen=True, slots=True)
class Options:
    """An empty string is none."""

    # fmt: off
    kubeconfig: str = option("", "how to reach the API server; '' = as kubectl, or as the pod that this is")
    context: str = option("", "the kubeconfig's context; '' = its current one")
    config_namespace: str = option("koordinator-system", "the namespace of the ConfigMap, the Lease and the Secret")
    slo_config_name: str = option(CONFIG_MAP_NAME, "the ConfigMap with the cluster's policy")
    enable_leader_election: bool = option(True, "let one replica lead; off: this one is alone")
    leader_election_namespace: str = option("", "the namespace of the Lease; '' = --config-namespace")
    rest_config_qps: float = option(30.0, "requests a second to the API server",
        bounds=(lambda rate: rate > 0, "must be more than 0"))
    rest_config_burst: int = option(50, "requests at once above that rate",
        bounds=(lambda burst: burst > 0, "must be more than 0"))
    feature_gates: Mapping[str, bool] = option("", "Name=true,Other=false", parse=feature_gates)
    node_strategy_name_need_check: bool = option(False, "node entries of the ConfigMap need a name of their own")
    metrics_addr: str = option("127.0.0.1:8080", "/metrics, /healthz and /readyz: host:port; '' = none")
    metrics_token_file: str = option("", "bearer token that /metrics wants")
    webhook_host: str = option("0.0.0.0", "the address that webhooks are served on")
    webhook_port: int = option(9876, "their port", bounds=(lambda port: 0 <= port < 65536, "must be a port"))
    webhook_service: str = option("koordinator-webhook-service", "the Service by which the API server reaches them")
    webhook_names: str = option("", "names and addresses besides, for webhook configurations with a URL: a,b")
    webhook_linger: float = option(5.0, "seconds that webhooks are served on after SIGTERM", metavar="SECONDS")
    advertise_address: str = option("", "host:port that the Lease names for this replica")
    log_level: str = option("info", "debug, info, warning or error", choices=LEVELS)
    # fmt: on

    def is_on(self, gate: str) -> bool:
        return featuregates.is_on(gate, GATES, self.feature_gates)

    @property
    def lease_namespace(self) -> str:
        return self.leader_election_namespace or self.config_namespace


PROGRAM = Program("koord-manager", "Overcommit, policy and admission for a cluster.", Options, GO)
