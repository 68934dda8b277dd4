"""The objects of a kind, as far as they can be had: those that can be read, and none of a kind that has no CRD."""

from __future__ import annotations

from koord.kube.client import EVERYTHING, Client, Selection
from koord.kube.errors import APIError
from koord.kube.kind import KINDS, Kind, T


async def read_list(client: Client, kind: Kind[T], selection: Selection = EVERYTHING) -> list[T]:
    """Those that can be read: one that cannot hides no other. Raises KubeError."""
    try:
        page = await client.list(kind, selection)
    except APIError as error:
        if error.is_not_found:
            return []
        raise
    return [entry.object for entry in page.entries if entry.object is not None]


async def read_names(client: Client, kind_name: str) -> list[str]:
    """The names of the objects of a kind, told by its plural or singular in any case. Raises KubeError."""
    kind = next((each for each in KINDS if kind_name.lower() in (each.plural, each.name.lower())), None)
    return [] if kind is None else [each.metadata.name for each in await read_list(client, kind)]
