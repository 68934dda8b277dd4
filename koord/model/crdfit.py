"""How far a CustomResourceDefinition that is installed, perhaps of another release, serves for our objects.

An API server drops each member that the installed schema does not know, without a word. The installed definition is
used all the same, and what it lacks is said: to an operator, who decides whether to replace it.

Invariant: nothing here changes a definition, and one of any form is compared as far as it goes; nothing raises.
A schema is read as the API server's pruning reads it: ``x-kubernetes-preserve-unknown-fields`` keeps what is not listed
(https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#field-pruning).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from koord.model.readable import shorten_list

Document = Mapping[str, Any]
_PRESERVES = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_WIDER = {_INT_OR_STRING: ("integer", "string"), "number": ("integer",)}
"""Types that take others."""

_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Fit:
    """What the installed definition ``name`` does not do.

    ``lacking``: the paths that it drops, ``[]`` standing for any item and ``{}`` for any member; of what is dropped
    whole, the topmost alone. ``mistyped``: the paths where it has another type and refuses the object. ``problems``:
    what it cannot serve at all, each a phrase that follows its name.
    """

    name: str
    lacking: tuple[str, ...] = ()
    mistyped: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        return not self.lacking and not self.mistyped and not self.problems

    def sentence(self) -> str:
        """Returns the sentence for an operator; "" if nothing is amiss."""
        phrases = list(self.problems)
        if self.mistyped:
            phrases.append(f"refuses objects with {_named(self.mistyped)}")
        if self.lacking:
            phrases.append(f"drops {_named(self.lacking)}")
        return f"The installed CustomResourceDefinition {self.name} {'; it '.join(phrases)}." if phrases else ""


def fit(desired: Document, installed: Document) -> Fit:
    """Compares ``installed`` with ``desired``, which has one version: two documents of apiextensions.k8s.io/v1."""
    name = _text(_object(desired, "metadata"), "name")
    desired_version = _versions(desired)[0]
    version = next((each for each in _served(installed) if each.get("name") == desired_version["name"]), None)
    if version is None:
        served = " and ".join(_text(each, "name") for each in _served(installed))
        return Fit(name, problems=(f"does not serve {desired_version['name']}" + (f" but {served}" if served else ""),))
    desired_spec, spec = _object(desired, "spec"), _object(installed, "spec")
    problems = []
    if desired_spec.get("scope") != spec.get("scope"):
        problems.append(f"is of scope {spec.get('scope')}, not {desired_spec.get('scope')}")
    if "status" in _object(desired_version, "subresources") and "status" not in _object(version, "subresources"):
        problems.append("has no status subresource")
    if spec.get("preserveUnknownFields"):
        return Fit(name, problems=tuple(problems))
    differences = tuple(_differences(_schema(desired_version), _schema(version), ""))
    lacking = tuple(path for path, is_lacking in differences if is_lacking)
    mistyped = tuple(path for path, is_lacking in differences if not is_lacking)
    return Fit(name, lacking, mistyped, tuple(problems))


def _differences(desired: Document, installed: Document, path: str) -> Iterator[tuple[str, bool]]:
    """The paths where ``installed`` falls short, and whether they are lacking (else mistyped)."""
    if _is_refused(_type(desired), _type(installed)):
        yield path, False
        return
    if desired.get(_PRESERVES) and not installed.get(_PRESERVES):
        yield path, True
        return
    for name, schema in _object(desired, "properties").items():
        yield from _of_member(schema, installed, name, _child(path, name))
    items, members = desired.get("items"), desired.get("additionalProperties")
    if isinstance(items, Mapping) and ("items" in installed or not installed.get(_PRESERVES)):
        yield from _differences(items, _object(installed, "items"), f"{path}[]")
    if isinstance(members, Mapping):
        yield from _of_member(members, installed, "", f"{path}{{}}")


def _of_member(desired: Document, installed: Document, name: str, path: str) -> Iterator[tuple[str, bool]]:
    """Yields the problems of the member ``name`` ("": any) that ``desired`` describes; ``installed`` describes its
    object.
    """
    members = installed.get("additionalProperties")
    schema = _object(installed, "properties").get(name, members)
    if isinstance(schema, Mapping):
        yield from _differences(desired, schema, path)
    elif not installed.get(_PRESERVES) and members is not True:
        yield path, True


def _is_refused(desired: str, installed: str) -> bool:
    """Returns whether a schema of type ``installed`` takes no value of type ``desired``; "" is any type."""
    return bool(desired and installed) and desired != installed and desired not in _WIDER.get(installed, ())


def _type(schema: Document) -> str:
    return _INT_OR_STRING if schema.get(_INT_OR_STRING) else _text(schema, "type")


def _schema(version: Document) -> Document:
    return _object(_object(version, "schema"), "openAPIV3Schema")


def _served(definition: Document) -> list[Document]:
    return [version for version in _versions(definition) if version.get("served")]


def _versions(definition: Document) -> list[Document]:
    versions = _object(definition, "spec").get("versions")
    return [each for each in versions if isinstance(each, Mapping)] if isinstance(versions, list) else []


def _object(document: Document, key: str) -> Document:
    """The member ``key`` if it is an object, else an empty one."""
    member = document.get(key)
    return member if isinstance(member, Mapping) else {}


def _text(document: Document, key: str) -> str:
    return str(document.get(key, ""))


def _child(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _named(paths: tuple[str, ...]) -> str:
    return ", ".join(shorten_list(paths, _MOST_NAMED))
