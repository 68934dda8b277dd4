"""What the chart makes of other releases and values, as a real helm renders it: no API server is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hatch_build import newest_release
from integration import build
from integration.cluster.api import Object
from integration.cluster.helm import Helm, documents, template
from koord_manager.options import WEBHOOK_GATES
from koord_scheduler import program
from release.chart import ROOT

WORKLOADS = ("Deployment", "DaemonSet", "Job")
RELEASED, DIGEST = f"v{newest_release(ROOT)}", f"v0.1.0@sha256:{'0123456789abcdef' * 4}"
API_SERVERS = ("10.0.0.0/28", "fd00::/64")


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    directory = tmp_path_factory.mktemp("helm")
    return Helm(build.program("helm"), directory / "no-kubeconfig", directory)


@pytest.mark.parametrize(
    ("kubernetes", "has_conditions", "has_policies"),
    [
        ("1.27", False, False),
        ("1.28.0", True, False),
        ("1.29.14", True, False),
        ("1.30.0", True, True),
    ],
)
def test_an_api_server_gets_nothing_that_it_does_not_know(
    helm: Helm, kubernetes: str, has_conditions: bool, has_policies: bool
) -> None:
    """It refuses fields that are of a later release, or drops them."""
    made = documents(template(helm, "--set", "featureGates=AllAlpha=true", "--kube-version", kubernetes))
    configured = [each for (kind, _), found in made.items() if "WebhookConf" in kind for each in found["webhooks"]]
    assert {each["name"] for each in configured} == WEBHOOK_GATES.keys()
    conditional = {each["name"] for each in configured if "matchConditions" in each}
    conditions = {"mnode-status.koordinator.sh", "vnode.koordinator.sh", "velasticquota.koordinator.sh"}
    assert conditional == (conditions if has_conditions else set())
    assert any("AdmissionPolicy" in kind for kind, _ in made) == has_policies


@pytest.mark.parametrize(
    ("values", "manager", "scheduler", "agent"),
    [
        (
            "",
            f"localhost/koord-manager:{RELEASED}",
            f"localhost/koord-scheduler:{RELEASED}",
            f"localhost/koordlet:{RELEASED}",
        ),
        (
            ",".join(f"{part}.image.tag={DIGEST}" for part in ("manager", "scheduler", "koordlet")),
            f"localhost/koord-manager:{DIGEST}",
            f"localhost/koord-scheduler:{DIGEST}",
            f"localhost/koordlet:{DIGEST}",
        ),
        (
            f"imageRepositoryHost=registry.example.com/koord,koordlet.image.host=other:5000,manager.image.tag={DIGEST}",
            f"registry.example.com/koord/koord-manager:{DIGEST}",
            f"registry.example.com/koord/koord-scheduler:{RELEASED}",
            f"other:5000/koordlet:{RELEASED}",
        ),
    ],
    ids=["default", "by digest", "of registries"],
)
def test_the_images_of_all_pods(helm: Helm, values: str, manager: str, scheduler: str, agent: str) -> None:
    """By default of localhost, which is no registry: an image of that name is one that the node has imported."""
    made = documents(template(helm, *(("--set", values) if values else ())))
    pods = {name: found["spec"]["template"]["spec"] for (kind, name), found in made.items() if kind in WORKLOADS}
    images = {name: {each["image"] for each in pod["containers"]} for name, pod in pods.items()}
    assert images == {
        "koord-manager": {manager},
        "koord-scheduler": {scheduler},
        "koordinator-uninstall": {manager},
        "koordlet": {agent},
    }


def blocks(*networks: str) -> dict[str, list[Object]]:
    return {"from": [{"ipBlock": {"cidr": each}} for each in networks]}


SCHEDULER = {"podSelector": {"matchLabels": {"koord-app": "koord-scheduler"}}}
FROM_API_SERVERS: dict[str, Any] = {"webhook": blocks(*API_SERVERS), "health": {}}


@pytest.mark.parametrize(
    ("values", "admitted"),
    [
        ("", {**FROM_API_SERVERS, "nodelink": {}}),
        (
            "manager.networkPolicy.nodes={10.1.0.0/16}",
            {**FROM_API_SERVERS, "nodelink": {"from": [*blocks("10.1.0.0/16")["from"], SCHEDULER]}},
        ),
        ("manager.nodeLink.port=0", FROM_API_SERVERS),
        (
            "manager.networkPolicy.metrics[0].podSelector.matchLabels.a=b",
            {**FROM_API_SERVERS, "nodelink": {}, "metrics": {"from": [{"podSelector": {"matchLabels": {"a": "b"}}}]}},
        ),
        (
            "manager.webhook.port=1001,manager.healthProbe.port=1002,manager.nodeLink.port=1003",
            {**FROM_API_SERVERS, "nodelink": {}},
        ),
    ],
    ids=["API servers", "nodes", "no NodeLink", "monitoring", "other ports"],
)
def test_who_reaches_which_port_of_the_managers(helm: Helm, values: str, admitted: Mapping[str, Object]) -> None:
    """By the port's name; {} is every client. A client that no rule names reaches no port."""
    policy = f"manager.networkPolicy.enabled=true,manager.networkPolicy.apiServers={{{','.join(API_SERVERS)}}}"
    made = documents(template(helm, "--set", ",".join(filter(None, (policy, values)))))
    spec, workload = (made[kind, "koord-manager"]["spec"] for kind in ("NetworkPolicy", "Deployment"))
    assert (spec["podSelector"], spec["policyTypes"]) == (workload["selector"], ["Ingress"])
    ports = workload["template"]["spec"]["containers"][0]["ports"]
    numbers = {each["name"]: each["containerPort"] for each in ports}
    assert spec["ingress"] == [{**who, "ports": [{"port": numbers[name]}]} for name, who in admitted.items()]


def test_koord_scheduler_reads_what_the_chart_says_it_reads(helm: Helm, tmp_path: Path) -> None:
    """The ConfigMap is a file that the program takes without a note; what is laid over it is in force."""
    for values, names in ((), ("koord-scheduler",)), (("profiles[0].schedulerName=batch",), ("batch",)):
        settings = [word for value in values for word in ("--set", f"scheduler.configuration.{value}")]
        made = documents(template(helm, *settings, "--set", "installation.namespace=elsewhere"))
        file = tmp_path / "koord-scheduler.config"
        file.write_text(made["ConfigMap", "koord-scheduler-config"]["data"]["koord-scheduler-config"])
        (container,) = made["Deployment", "koord-scheduler"]["spec"]["template"]["spec"]["containers"]
        flags = [each for each in container["args"] if not each.startswith("--config=")]
        options, configuration = program.load([f"--config={file}", *flags])
        assert (configuration.notes, configuration.missing) == ((), ())
        assert tuple(each.name for each in configuration.profiles) == names
        assert (configuration.lease, options.lease_namespace) == ("koord-scheduler", "elsewhere")
        assert made["Role", "koord-scheduler"]["rules"][1]["resourceNames"] == [configuration.lease]
        assert made["Role", "koord-scheduler"]["metadata"]["namespace"] == options.lease_namespace


def test_another_configuration_replaces_the_schedulers_pods(helm: Helm) -> None:
    """They read it when they start."""

    def digest(*values: str) -> str:
        made = documents(template(helm, *(word for value in values for word in ("--set", value))))
        pod = made["Deployment", "koord-scheduler"]["spec"]["template"]
        return str(pod["metadata"]["annotations"]["koord.sh/configuration"])

    assert digest() == digest("manager.replicas=1")
    assert digest() != digest("scheduler.configuration.podMaxBackoffSeconds=5")


def test_nothing_of_the_scheduler_is_there_where_it_is_off(helm: Helm) -> None:
    made = documents(template(helm, "--set", "scheduler.enabled=false"))
    assert [name for _, name in made if "scheduler" in name] == []


def test_without_being_asked_for_there_is_no_network_policy(helm: Helm) -> None:
    assert "NetworkPolicy" not in {kind for kind, _ in documents(template(helm))}
