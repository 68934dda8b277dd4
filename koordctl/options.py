"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

SOCKET = "/run/koord/qosd-inspect.sock"
_Command = Callable[..., Any]


def daemon(command: _Command) -> _Command:
    """``--socket`` and ``--timeout``: which daemon is asked, and for how long."""
    socket = click.option(
        "--socket",
        default=SOCKET,
        show_default=True,
        metavar="PATH",
        envvar="KOORD_INSPECT_SOCKET",
        help="koord-qosd's NodeInspect socket.",
    )
    timeout = click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0, min_open=True),
        default=10.0,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for the answer.",
    )
    decorated: _Command = socket(timeout(command))
    return decorated


def output(*more: str, help_text: str | None = None) -> Callable[[_Command], _Command]:
    """``-o table|json|yaml`` and whatever ``more`` tables the command has."""
    choices: Sequence[str] = ("table", *more, "json", "yaml")
    return click.option(
        "-o", "--output", type=click.Choice(choices), default="table", show_default=True, help=help_text
    )


def wait() -> Callable[[_Command], _Command]:
    """``wait_s``: how long the installer waits for others."""
    return click.option(
        "--timeout",
        "wait_s",
        type=click.FloatRange(min=1),
        default=180.0,
        show_default=True,
        metavar="SECONDS",
        help="How long a service, and kubelet after its restart, may take to be well.",
    )
