"""koord-manager's options, with the names that upstream's flags have; also keys of ``--config`` (YAML)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from koord.admission import gates as admission_gates
from koord.cluster.options import ClusterOptions, ComponentOptions
from koord.model import featuregates
from koord.model.featuregates import Gate
from koord.model.locations import NAMESPACE
from koord.service import optionvalues
from koord.service.options import Program, Style, option
from koord.sloconfig.loading import CONFIG_MAP_NAME

NAME = "koord-manager"
WEBHOOK_FRAMEWORK = "WebhookFramework"
POD_MUTATING, POD_VALIDATING = "PodMutatingWebhook", "PodValidatingWebhook"
ELASTIC_MUTATING, ELASTIC_VALIDATING = "ElasticMutatingWebhook", "ElasticValidatingWebhook"
NODE_MUTATING, NODE_VALIDATING = "NodeMutatingWebhook", "NodeValidatingWebhook"
CONFIG_MAP_VALIDATING = "ConfigMapValidatingWebhook"
COLOCATION_PROFILE_CONTROLLER = "ColocationProfileController"

GATES: Mapping[str, Gate] = {
    WEBHOOK_FRAMEWORK: Gate(True, "serve webhooks and keep their certificates"),
    POD_MUTATING: Gate(True, "/mutate-pod"),
    POD_VALIDATING: Gate(True, "/validate-pod"),
    ELASTIC_MUTATING: Gate(True, "/mutate-scheduling-sigs-k8s-io-v1alpha1-elasticquota"),
    ELASTIC_VALIDATING: Gate(True, "/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota"),
    NODE_MUTATING: Gate(False, "/mutate-node-status"),
    NODE_VALIDATING: Gate(False, "/validate-node"),
    CONFIG_MAP_VALIDATING: Gate(False, "/validate-configmap"),
    COLOCATION_PROFILE_CONTROLLER: Gate(False, "changed profiles reach pods that wait for a node"),
    **admission_gates.GATES,
}
"""By name."""


WEBHOOK_GATES: Mapping[str, str] = {
    "mpod-create.koordinator.sh": POD_MUTATING,
    "melasticquota.koordinator.sh": ELASTIC_MUTATING,
    "mnode-status.koordinator.sh": NODE_MUTATING,
    "vpod.koordinator.sh": POD_VALIDATING,
    "velasticquota.koordinator.sh": ELASTIC_VALIDATING,
    "vnode.koordinator.sh": NODE_VALIDATING,
    "vconfigmap.koordinator.sh": CONFIG_MAP_VALIDATING,
}
"""By the name of a webhook in the configurations."""


def feature_gates(text: str) -> Mapping[str, bool]:
    """Reads ``Name=true,Other=false``. Raises ValueError for a name that is no gate's."""
    return featuregates.checked(optionvalues.switches(text), GATES)


@dataclass(frozen=True, slots=True)
class Options(ComponentOptions):
    """An empty string is none."""

    # fmt: off
    config_namespace: str = option(NAMESPACE, "the namespace of the ConfigMap, the Lease and the Secret")
    slo_config_name: str = option(CONFIG_MAP_NAME, "the ConfigMap with the cluster's policy")
    feature_gates: Mapping[str, bool] = option("", "Name=true,Other=false", parse=feature_gates)
    node_strategy_name_need_check: bool = option(False, "node entries of the ConfigMap need a name of their own")
    colocation_profile_reconcile_by_default: bool = option(False,
        "ColocationProfileController follows every profile, not only those labelled controller-managed")
    colocation_profile_update_pod_qps: float = option(10.0, "pods that it changes a second",
        bounds=(lambda rate: rate > 0, "must be more than 0"))
    colocation_profile_update_pod_qps_burst: int = option(100, "pods at once above that rate",
        bounds=(lambda burst: burst > 0, "must be more than 0"))
    webhook_host: str = option("", "the address that webhooks are served on; '' = every one")
    webhook_port: int = option(9876, "their port", bounds=(lambda port: 0 <= port < 65536, "must be a port"))
    webhook_service: str = option("koordinator-webhook-service", "the Service by which the API server reaches them")
    webhook_client_ca_file: str = option("",
        "PEM of the authorities by which API servers' client certificates are verified; '' = whoever calls is answered")
    webhook_client_names: tuple[str, ...] = option("",
        "common names of client certificates that webhooks answer: a,b; '' = those of every one that is verified",
        parse=optionvalues.names)
    webhook_names: str = option("", "names and addresses besides, for webhook configurations with a URL: a,b")
    scheduler_users: tuple[str, ...] = option("",
        "who, besides system:masters, may write pods' annotations that are the scheduler's: a,b; '' = the account "
        "koord-scheduler in --config-namespace, and system:kube-scheduler",
        parse=optionvalues.names)
    webhook_linger: float = option(5.0, "seconds that webhooks are served on after SIGTERM", metavar="SECONDS")
    nodelink_endpoint: str = option("",
        "the address that nodes report to: host:port, or :port for every address; '' = they do not",
        parse=optionvalues.optional_listen_address)
    nodelink_service_account: str = option("koordlet",
        "the account of node agents that run as pods, in --config-namespace")
    scheduler_service_account: str = option("koord-scheduler",
        "the account of schedulers that may follow what nodes use, in --config-namespace; '' = none may")
    advertise_address: str = option("", "host:port that the Lease names for this replica: where nodes reach NodeLink",
        parse=optionvalues.optional_host_port)
    sync_period: str = option("", "has no effect: caches follow watches")
    # fmt: on

    def is_on(self, gate: str) -> bool:
        return featuregates.is_on(gate, GATES, self.feature_gates)


PROGRAM = Program(NAME, "Overcommit, policy and admission for a cluster.", Options, Style.GO)


@dataclass(frozen=True, slots=True)
class UninstallOptions(ClusterOptions):
    """The options of ``koord-manager uninstall``."""

    # fmt: off
    config_namespace: str = option(NAMESPACE, "the namespace of the managers and of the ConfigMap")
    slo_config_name: str = option(CONFIG_MAP_NAME, "the ConfigMap with the cluster's policy")
    deployment: str = option("koord-manager", "the Deployment of the managers")
    timeout: float = option(120.0, "seconds for which nodes are waited for",
        bounds=(lambda seconds: seconds >= 0, "must not be negative"), metavar="SECONDS")
    # fmt: on


UNINSTALL = Program(
    f"{NAME} uninstall", "Have every node give back what it holds, and take from the cluster what is offered.",
    UninstallOptions, Style.GO,
)  # fmt: skip
