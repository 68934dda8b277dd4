"""``koordctl disable`` and ``koordctl enable``: strategies off and on, until koord-qosd ends."""

from __future__ import annotations

import click

from koordctl import options
from koordctl.exits import EPILOG

_ALL = "all"


@click.command(epilog=EPILOG)
@click.argument("names", nargs=-1, required=True, metavar="all|NAME...")
@options.output()
@options.daemon
def disable(names: tuple[str, ...], output: str, socket: str, timeout_s: float) -> None:
    """Turn strategies off: their files go back to the values before. Holds until koord-qosd ends."""
    _switch(False, names, output, socket, timeout_s)


@click.command(epilog=EPILOG)
@click.argument("names", nargs=-1, required=True, metavar="all|NAME...")
@options.output()
@options.daemon
def enable(names: tuple[str, ...], output: str, socket: str, timeout_s: float) -> None:
    """Let strategies that were disabled act again, as far as the rules enable them."""
    _switch(True, names, output, socket, timeout_s)


def _switch(enabled: bool, names: tuple[str, ...], output: str, socket: str, timeout_s: float) -> None:
    from koord.pb.koord import inspect_pb2 as inspect  # noqa: PLC0415
    from koordctl.client import Daemon  # noqa: PLC0415
    from koordctl.output import show  # noqa: PLC0415
    from koordctl.views import node as view  # noqa: PLC0415

    if _ALL in names and len(names) > 1:
        raise click.BadParameter("either all or names", param_hint="NAME")
    request = inspect.SetStrategiesRequest(enabled=enabled, names=() if _ALL in names else names)
    answer = Daemon(socket, timeout_s).ask("SetStrategies", request, inspect.SetStrategiesResponse)
    show(answer, output, lambda switched: view.strategies(switched.strategies))
