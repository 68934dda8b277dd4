"""The release of Kubernetes that the API server is: by its minor version pods are scored.

A release that is not known counts as the nearest that is. So does a server that does not say its release: it keeps
nobody from placing pods.
"""

from __future__ import annotations

import logging
import re

import msgspec

from koord.kube.client import Client
from koord.kube.errors import KubeError
from koord.scheduling.defaults import MINOR

_log = logging.getLogger(__name__)
OLDEST, NEWEST = 28, 36
"""The minor versions whose formulas are known."""
_LEADING = re.compile(r"\d+")


class _Version(msgspec.Struct):
    major: str = ""
    minor: str = ""
    """Digits, which a provider's mark may follow: ``34+``."""


async def minor_of(client: Client) -> int:
    """Returns 34 of an API server of 1.34."""
    try:
        said = msgspec.json.decode(await client.get_path("/version"), type=_Version)
    except (KubeError, msgspec.DecodeError) as error:
        _log.warning("the API server does not say its version: pods are scored as by 1.%d: %s", MINOR, error)
        return MINOR
    found = _LEADING.match(said.minor)
    if said.major != "1" or found is None:
        release = f"{said.major}.{said.minor}"
        _log.warning("the API server's version %r is not one of 1.x: pods are scored as by 1.%d", release, MINOR)
        return MINOR
    minor = int(found[0])
    nearest = min(max(minor, OLDEST), NEWEST)
    if nearest != minor:
        _log.warning("the API server is of 1.%d, which is not known: pods are scored as by 1.%d", minor, nearest)
    return nearest
