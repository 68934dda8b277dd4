"""Connects a command to the API server of a cluster, chosen as kubectl does, and says in a sentence what fails.

A list holds the objects that can be read, and none of a kind that has no CRD.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar

import koord
from koord.kube import kubeconfig
from koord.kube.client import EVERYTHING, CallLimits, Client, Selection
from koord.kube.credentials import Credentials, CredentialsError
from koord.kube.errors import APIError, KubeError
from koord.kube.kind import KINDS, Kind, T
from koord.kube.kubeconfig import RESTConfig
from koord.kube.transport import Transport
from koordctl.exits import NoAnswer, Refused

Answer = TypeVar("Answer")
_TRIES = 2
_DEFAULT_NAMESPACE = "default"
_FORBIDDEN = (
    " These credentials lack a right: run koordctl where kubectl works, with yours. In the node agent's pod it has the "
    "agent's, which may read only its own node's objects. What a command reads: docs/koord-manager.md, Ask the cluster."
)


@dataclass(frozen=True, slots=True)
class Choice:
    """``kubeconfig``: a file; "" is $KUBECONFIG or ~/.kube/config. ``context``: "" is the file's current one."""

    kubeconfig: str
    context: str
    timeout_s: float


def ask(choice: Choice, question: Callable[[Client], Awaitable[Answer]]) -> Answer:
    """Asks the chosen cluster, and returns the answer of ``question``. Raises NoAnswer or Refused."""
    try:
        return asyncio.run(_asked(choice, question))
    except CredentialsError as error:
        raise _no_cluster(error) from error
    except APIError as error:
        remedy = _FORBIDDEN if error.status == HTTPStatus.FORBIDDEN else ""
        raise Refused(f"the API server answered {error}.{remedy}") from error
    except KubeError as error:
        raise NoAnswer(f"the API server cannot be reached: {error}.") from error


def namespace(choice: Choice) -> str:
    """Returns the namespace of the kubeconfig's context, as kubectl takes it. Raises NoAnswer."""
    try:
        return _settings(choice).namespace or _DEFAULT_NAMESPACE
    except (OSError, ValueError) as error:
        raise _no_cluster(error) from error


async def read_list(client: Client, kind: Kind[T], selection: Selection = EVERYTHING) -> list[T]:
    """Returns all selected objects but those that cannot be read; [] where the server does not know the kind. Raises
    KubeError.
    """
    try:
        listed = await client.list(kind, selection)
    except APIError as error:
        if error.is_not_found:
            return []
        raise
    return [entry.object for entry in listed.entries if entry.object is not None]


async def read_names(client: Client, kind_name: str) -> list[str]:
    """Returns the names of a kind's objects; ``kind_name``: its plural or singular, in any case. Raises KubeError."""
    kind = next((each for each in KINDS if kind_name.lower() in (each.plural, each.name.lower())), None)
    return [] if kind is None else [each.metadata.name for each in await read_list(client, kind)]


async def _asked(choice: Choice, question: Callable[[Client], Awaitable[Answer]]) -> Answer:
    credentials = Credentials(lambda: _settings(choice), os.environ, time.monotonic, time.time)
    async with Transport(credentials, f"koordctl/{koord.__version__}") as transport:
        return await question(Client(transport, CallLimits(tries=_TRIES, timeout_s=choice.timeout_s)))


def _settings(choice: Choice) -> RESTConfig:
    """Raises ConfigError or OSError."""
    return kubeconfig.find(os.environ, choice.kubeconfig, choice.context)


def _no_cluster(error: Exception) -> NoAnswer:
    """Returns an error that says where a cluster was looked for: kubectl looks there, too."""
    stated = os.environ.get("KUBECONFIG")
    variable = f"$KUBECONFIG is {stated!r}" if stated else "$KUBECONFIG is not set"
    home = os.path.expanduser("~/.kube/config")
    file = home if os.path.exists(home) else f"there is no {home}"
    return NoAnswer(f"no cluster is known: {error}. Looked at: --kubeconfig, {variable}, {file}.")
