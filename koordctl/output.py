"""Answers for programs: JSON and YAML with proto field names, numbers as numbers, absent values absent.

protobuf's own JSON writes 64-bit numbers as strings; here they are numbers, and inputs of a formula are one object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from google.protobuf.message import Message

from koord.pb.koord import inspect_pb2 as inspect

if TYPE_CHECKING:
    from koordctl.fields import Layout

Answer = TypeVar("Answer", bound=Message)


def show_answer(answer: Answer, layout: Layout[Any], page: Callable[[Answer, Layout[Any]], str] | None = None) -> None:
    """Print ``answer`` as ``layout`` says: for people by ``page``, or the listing's table if absent."""
    show(
        layout,
        lambda: page(answer, layout) if page else layout.table(layout.listing.rows(answer)),
        lambda: layout.document(plain(answer), answer),
    )


def show(layout: Layout[Any], page: Callable[[], str], document: Callable[[], Any]) -> None:
    """Print ``page`` for people, or ``document`` for programs."""
    click.echo(page() if layout.is_table else render(document(), layout.output))


def render(document: Any, output: str) -> str:
    """``document`` as ``json`` or ``yaml``, without a final line break."""
    if output == "json":
        import json  # noqa: PLC0415 - only this output needs it

        return json.dumps(document, indent=2, ensure_ascii=False)
    import yaml  # noqa: PLC0415 - only this output needs it

    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)).rstrip("\n")


def plain(message: Message) -> dict[str, Any]:
    """Every field of ``message`` in the order of the proto; those with presence only if they are set."""
    members = {field.name: member(message, field.name) for field in message.DESCRIPTOR.fields}
    return {name: value for name, value in members.items() if value is not None}


def member(holder: object, path: str) -> Any:
    """The member at ``path`` (names with dots between) as a plain value; None where it or a holder is not set."""
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
    """A formula's inputs by name; None for one that could not be had."""
    return {each.name: getattr(each, each.WhichOneof("value") or "", None) for each in messages}
