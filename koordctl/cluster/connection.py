"""A command's connection to the API server, with kubectl's choice of a cluster and a sentence for what fails."""

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
from koord.kube.client import Client, Limits
from koord.kube.credentials import Credentials, CredentialsError
from koord.kube.errors import APIError, KubeError
from koord.kube.kubeconfig import Settings
from koord.kube.transport import Transport
from koordctl.exits import Refused, Unreachable

T = TypeVar("T")
_TRIES = 2
_DEFAULT_NAMESPACE = "default"
_FORBIDDEN = (
    " These credentials lack a right: ask with yours, where kubectl works. The node agent's, which koordctl has in its "
    "pod, may read its own node's objects alone; docs/koord-manager.md says what each command reads (Ask the cluster)."
)


@dataclass(frozen=True, slots=True)
class Choice:
    """``kubeconfig``: a file; "" is $KUBECONFIG or ~/.kube/config. ``context``: "" is the file's current one."""

    kubeconfig: str
    context: str
    timeout_s: float


def ask(choice: Choice, question: Callable[[Client], Awaitable[T]]) -> T:
    """What ``question`` comes to with a client of the chosen cluster. Raises Unreachable or Refused."""
    try:
        return asyncio.run(_asked(choice, question))
    except CredentialsError as error:
        raise _no_cluster(error) from error
    except APIError as error:
        remedy = _FORBIDDEN if error.status == HTTPStatus.FORBIDDEN else ""
        raise Refused(f"the API server answered {error}.{remedy}") from error
    except KubeError as error:
        raise Unreachable(f"the API server cannot be reached: {error}.") from error


def namespace(choice: Choice) -> str:
    """The namespace of the kubeconfig's context, as kubectl takes it. Raises Unreachable."""
    try:
        return _settings(choice).namespace or _DEFAULT_NAMESPACE
    except (OSError, ValueError) as error:
        raise _no_cluster(error) from error


async def _asked(choice: Choice, question: Callable[[Client], Awaitable[T]]) -> T:
    credentials = Credentials(lambda: _settings(choice), os.environ, time.monotonic, time.time)
    async with Transport(credentials, f"koordctl/{koord.__version__}") as transport:
        return await question(Client(transport, Limits(tries=_TRIES, timeout_s=choice.timeout_s)))


def _settings(choice: Choice) -> Settings:
    """Raises ConfigError or OSError."""
    return kubeconfig.find(os.environ, choice.kubeconfig, choice.context)


def _no_cluster(error: Exception) -> Unreachable:
    """Says where one was looked for: kubectl looks there, too."""
    stated = os.environ.get("KUBECONFIG")
    variable = f"$KUBECONFIG is {stated!r}" if stated else "$KUBECONFIG is not set"
    home = os.path.expanduser("~/.kube/config")
    file = home if os.path.exists(home) else f"there is no {home}"
    return Unreachable(f"no cluster is known: {error}. Looked at: --kubeconfig, {variable}, {file}.")
