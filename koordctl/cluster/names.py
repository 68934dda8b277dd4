"""Checks names as people type them: one that no object can have is refused before anything is asked.

Each function raises BadParameter, which names the argument.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from koord.kube.kind import NAMESPACE, NODE, Key, Kind
from koord.model.readable import shorten_list
from koordctl.cluster.objects import DETAILED_POD

MOST = 20


def pod(namespace: str, name: str) -> Key:
    """Returns the key of a pod, whose argument is NAME."""
    check_namespace(namespace, "the namespace")
    key = Key(namespace, name)
    _check(DETAILED_POD, key, "NAME")
    return key


def check_node(name: str) -> None:
    """Checks a node's name, whose argument is NAME."""
    check(NODE, name, "NAME")


def some(names: Iterable[str]) -> str:
    """Lists names for people: the first ``MOST`` in their order, how many more there are; "none" if there are none."""
    return ", ".join(shorten_list(sorted(names), MOST)) or "none"


def check_namespace(name: str, argument: str) -> None:
    """Checks a namespace; ``argument``: the one that says it."""
    check(NAMESPACE, name, argument)


def check(kind: Kind[Any], name: str, argument: str) -> None:
    """Checks the name of an object of ``kind``, one that has no namespaces."""
    _check(kind, Key("", name), argument)


def _check(kind: Kind[Any], key: Key, argument: str) -> None:
    try:
        kind.object_path(key)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", param_hint=argument) from error
