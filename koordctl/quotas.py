"""Finds ResourceQuotas that refuse batch and mid pods, or that do not bound them.

A quota of native CPU or memory makes each container in its scope state them. A pod that a profile has changed states
``kubernetes.io/batch-cpu`` instead, so the quota refuses it. That is a finding where the manifests show that such pods
are to run in the quota's namespace: a pod is there, or a profile may match the namespace.

A quota does not count resources whose names contain ``kubernetes.io/`` (``isExtendedResourceNameForQuota`` in
k8s.io/kubernetes/pkg/quota/v1/evaluator/core): it accepts ``requests.kubernetes.io/batch-cpu``, which no pod uses up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from koord.admission import ObjectProblem, priorityclasses, translation
from koord.admission.priorityclasses import PriorityClassObjects
from koord.model import priority
from koord.model.core import Pod
from koord.model.documents import at, mapping
from koord.model.priority import EXTENDED_RESOURCES
from koord.model.problem import Problem
from koord.model.profile import ClusterColocationProfile
from koord.model.quantity import QuantityError
from koordctl.manifests import Manifest

KIND, NAMESPACE = "ResourceQuota", "Namespace"
_NATIVE = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
"""The amounts that a quota makes every container state."""
_PRIORITY_CLASS, _NOT_BEST_EFFORT = "PriorityClass", "NotBestEffort"


@dataclass(frozen=True, slots=True)
class _Scopes:
    """The scopes of a quota that decide on batch pods, which are all of Kubernetes' class BestEffort."""

    names: tuple[str, ...]
    expressions: tuple[Mapping[str, Any], ...]

    def may_match(self, class_name: str) -> bool:
        """Returns whether a quota with these scopes may count pods of this PriorityClass."""
        names = (*self.names, *(str(each.get("scopeName")) for each in self.expressions))
        if _NOT_BEST_EFFORT in names:
            return False
        of_class = [each for each in self.expressions if each.get("scopeName") == _PRIORITY_CLASS]
        return all(_holds(each.get("operator"), each.get("values"), class_name) for each in of_class)


def findings(
    manifests: Iterable[Manifest],
    profiles: Iterable[ClusterColocationProfile],
    pods: Iterable[tuple[str, Pod]],
    classes: PriorityClassObjects,
) -> Iterator[ObjectProblem]:
    """``pods``: with their namespaces. ``classes``: the PriorityClasses, by which a profile makes batch pods or not."""
    known = list(manifests)
    for manifest in known:
        yield from _uncounted(manifest)
    labels = {each.name: each.labels for each in known if each.kind == NAMESPACE}
    of_pods = {(namespace, pod.spec.priority_class_name) for namespace, pod in pods if _has_own_resources(pod)}
    translating = [each for each in profiles if _translates(each, classes)]
    for manifest in known:
        if manifest.kind != KIND:
            continue
        namespace, scopes = manifest.namespace, _scopes(manifest)
        names = {name for place, name in of_pods if place == namespace}
        names |= {
            each.spec.priority_class_name for each in translating if _may_match(each, namespace, labels.get(namespace))
        }
        refused = sorted(name for name in names if scopes.may_match(name))
        hard = _hard(manifest)
        for resource in (name for name in _NATIVE if refused and name in hard):
            yield ObjectProblem(manifest.label, Problem(f"spec.hard.{resource}", _sentence(resource, refused)))


def _uncounted(manifest: Manifest) -> Iterator[ObjectProblem]:
    for name in _hard(manifest) if manifest.kind == KIND else ():
        if str(name).endswith(EXTENDED_RESOURCES):
            why = "Kubernetes does not count this resource, so the quota bounds nothing"
            remedy = "bound the number of such pods by a quota of pods with the scope PriorityClass"
            yield ObjectProblem(manifest.label, Problem(f"spec.hard.{name}", f"{why}: {remedy}"))


def _sentence(resource: str, class_names: list[str]) -> str:
    names = " and ".join(filter(None, class_names)) or "batch or mid priority"
    return (
        f'each pod of {names} in this namespace is refused ("must specify {resource}"), since its CPU and memory are '
        f"batch or mid resources: leave such pods out with scopes: [{_NOT_BEST_EFFORT}]"
    )


def _has_own_resources(pod: Pod) -> bool:
    try:
        return translation.has_own_resources(priorityclasses.effective(pod)) and priorityclasses.raw(pod) is not None
    except QuantityError:
        return False


def _translates(profile: ClusterColocationProfile, classes: PriorityClassObjects) -> bool:
    known = classes.get(profile.spec.priority_class_name)
    band = None if known is None else priority.band_of(known.value)
    return band is not None and translation.has_own_resources(band)


def _may_match(profile: ClusterColocationProfile, namespace: str, labels: Mapping[str, str] | None) -> bool:
    """``labels``: of the namespace; None where the manifests do not say them."""
    selector = profile.spec.namespace_selector
    own = {"kubernetes.io/metadata.name": namespace}
    return selector is None or labels is None or selector.matches({**labels, **own})


def _hard(manifest: Manifest) -> Mapping[str, Any]:
    return mapping(manifest.document, "spec", "hard")


def _scopes(manifest: Manifest) -> _Scopes:
    names = at(manifest.document, "spec", "scopes")
    expressions = at(manifest.document, "spec", "scopeSelector", "matchExpressions")
    return _Scopes(
        tuple(map(str, names)) if isinstance(names, list) else (),
        tuple(each for each in expressions if isinstance(each, Mapping)) if isinstance(expressions, list) else (),
    )


def _holds(operator: object, values: object, class_name: str) -> bool:
    listed = values if isinstance(values, list) else []
    match operator:
        case "In":
            return class_name in listed
        case "NotIn":
            return class_name not in listed
        case "DoesNotExist":
            return not class_name
        case _:
            return True
