"""The objects of a kind, as far as they can be had: those that can be read, and none of a kind that has no CRD."""

from __future__ import annotations

from koord.kube.client import EVERYTHING, Client, Selection
from koord.kube.errors import APIError
from koord.kube.kind import Kind, T


async def read_list(client: Client, kind: Kind[T], selection: Selection = EVERYTHING) -> list[T]:
    """Those that can be read: one that cannot hides no other. Raises KubeError."""
    try:
        page = await client.list(kind, selection)
    except APIError as error:
        if error.is_not_found:
            return []
        raise
    return [entry.object for entry in page.entries if entry.object is not None]
