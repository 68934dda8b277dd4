"""The lifecycle of an object that each Node has one of, of the same name: it comes, follows and goes with its Node.

A race with another replica or with a user ends as if there had been none: an object that exists already, or is gone,
is what was wanted. What it holds is looked at again when its event comes.
"""

from __future__ import annotations

from typing import Any

from koord.kube.client import Client, Preconditions
from koord.kube.errors import APIError
from koord.kube.kind import Key, Kind
from koord.model import mergepatch


async def create(client: Client, kind: Kind[Any], name: str, spec: mergepatch.Patch) -> None:
    """Raises KubeError."""
    body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, "spec": spec}
    try:
        await client.create(kind, body)
    except APIError as error:
        if not error.is_already_exists:
            raise


async def change(client: Client, kind: Kind[Any], name: str, before: mergepatch.Patch, after: mergepatch.Patch) -> None:
    """Patches what differs of ``spec``. Raises KubeError."""
    patch = mergepatch.diff(before, after)
    if not patch:
        return
    try:
        await client.patch(kind, Key("", name), {"spec": patch})
    except APIError as error:
        if not error.is_not_found:
            raise


async def delete(client: Client, kind: Kind[Any], name: str, uid: str) -> None:
    """Deletes the object that has ``uid``. Raises KubeError."""
    try:
        await client.delete(kind, Key("", name), Preconditions(uid))
    except APIError as error:
        if not (error.is_not_found or error.is_conflict):
            raise
