"""Answers for programs: JSON and YAML with proto field names, numbers as numbers, absent values absent.

protobuf's own JSON writes 64-bit numbers as strings; here they are numbers, and inputs of a formula are one object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click
from google.protobuf.message import Message

from koord.pb.koord import inspect_pb2 as inspect

Answer = TypeVar("Answer", bound=Message)


def show(answer: Answer, output: str, table: Callable[[Answer], str]) -> None:
    """Print ``answer`` as ``json``, ``yaml``, or by ``table``."""
    click.echo(render(plain(answer), output) if output in ("json", "yaml") else table(answer))


def render(document: Any, output: str) -> str:
    """``document`` as ``json`` or ``yaml``, without a final line break."""
    if output == "json":
        import json  # noqa: PLC0415 - only this output needs it

        return json.dumps(document, indent=2, ensure_ascii=False)
    import yaml  # noqa: PLC0415 - only this output needs it

    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)).rstrip("\n")


def plain(message: Message) -> dict[str, Any]:
    """Every field of ``message`` in the order of the proto; those with presence only if they are set."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if field.message_type is None:
            found[field.name] = list(value) if field.is_repeated else value
        elif field.message_type is inspect.Input.DESCRIPTOR:
            found[field.name] = inputs(value)
        else:
            found[field.name] = [plain(each) for each in value] if field.is_repeated else plain(value)
    return found


def inputs(fed: Iterable[inspect.Input]) -> dict[str, Any]:
    """A formula's inputs by name; None for one that could not be had."""
    return {each.name: getattr(each, each.WhichOneof("value") or "", None) for each in fed}
