"""Prints answers on standard output: as a page for people, as JSON or YAML for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click
from google.protobuf.message import Message

from koordctl.fields import ListingLayout
from koordctl.plain import plain

Answer = TypeVar("Answer", bound=Message)


def show_answer(
    answer: Answer, layout: ListingLayout[Any], page: Callable[[Answer, ListingLayout[Any]], str] | None = None
) -> None:
    """Prints ``answer`` as ``layout`` says: for people by ``page``, or the listing's table if absent."""
    show(
        layout,
        lambda: page(answer, layout) if page else layout.table(layout.listing.rows(answer)),
        lambda: layout.document(plain(answer), answer),
    )


def warn(warnings: Iterable[str], is_table: bool) -> None:
    """Prints each warning on standard error, below a table; programs find them in the document."""
    for warning in warnings if is_table else ():
        click.echo(f"warning: {warning}", err=True)


def show(layout: ListingLayout[Any], page: Callable[[], str], document: Callable[[], Any]) -> None:
    """Prints ``page`` for people, or ``document`` for programs."""
    click.echo(page() if layout.is_table else render(document(), layout.output))


def render(document: Any, output: str) -> str:
    """Returns ``document`` as ``json`` or ``yaml``, without a final line break."""
    if output == "json":
        import json  # noqa: PLC0415 - only this output needs it

        return json.dumps(document, indent=2, ensure_ascii=False)
    import yaml  # noqa: PLC0415 - only this output needs it

    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)).rstrip("\n")
