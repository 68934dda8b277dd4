"""Turns messages into plain values: proto field names, numbers as numbers, absent values absent.

protobuf's own JSON writes 64-bit numbers as strings; here they are numbers, and inputs of a formula are one object.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.message import Message

from koord.pb.koord import inspect_pb2 as inspect


def plain(message: Message) -> dict[str, Any]:
    """Returns every field of ``message`` in the order of the proto; those with presence only if they are set."""
    members = {field.name: member(message, field.name) for field in message.DESCRIPTOR.fields}
    return {name: value for name, value in members.items() if value is not None}


def member(holder: object, path: str) -> Any:
    """Returns the member at ``path`` (names with dots between) as a plain value; None if it or a holder is not set."""
    *holders, name = path.split(".")
    for each in holders:
        holder = getattr(holder, each)
    if not isinstance(holder, Message):
        return None if holder is None else getattr(holder, name)
    field = holder.DESCRIPTOR.fields_by_name[name]
    if field.has_presence and not holder.HasField(name):
        return None
    value = getattr(holder, name)
    if field.message_type is None:
        return list(value) if field.is_repeated else value
    if field.message_type is inspect.Input.DESCRIPTOR:
        return inputs(value)
    return [plain(each) for each in value] if field.is_repeated else plain(value)


def inputs(messages: Iterable[inspect.Input]) -> dict[str, Any]:
    """Returns a formula's inputs by name; None for one that could not be had."""
    return {each.name: getattr(each, each.WhichOneof("value") or "", None) for each in messages}
