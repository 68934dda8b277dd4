"""Strategies off and on, as ``koordctl disable`` and ``koordctl enable`` ask koord-qosd for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from koordctl.fields import Layout

_ALL = "all"
METAVAR = f"{_ALL}|NAME..."


def switch(enabled: bool, names: tuple[str, ...], layout: Layout[Any], socket: str, timeout_s: float) -> None:
    """Those of ``names``, or all; what became of every strategy is shown."""
    from koord.pb.koord import inspect_pb2 as inspect  # noqa: PLC0415
    from koordctl.client import Daemon  # noqa: PLC0415
    from koordctl.output import show_answer  # noqa: PLC0415

    if _ALL in names and len(names) > 1:
        raise click.BadParameter("either all or names", param_hint="NAME")
    request = inspect.SetStrategiesRequest(enabled=enabled, names=() if _ALL in names else names)
    answer = Daemon(socket, timeout_s).ask("SetStrategies", request, inspect.SetStrategiesResponse)
    show_answer(answer, layout)
