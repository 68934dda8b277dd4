"""Options that several commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from koord.model.locations import INSPECT_SOCKET, NAMESPACE

if TYPE_CHECKING:
    from koordctl.fields import Listing, ListingField

_Command = Callable[..., Any]
Lookup = Callable[[Mapping[str, Any]], "Listing[Any]"]
"""A command's parameters → its listing."""


def _address(context: click.Context, parameter: click.Parameter, value: str) -> str:
    port = value.rpartition(":")[2]
    if value and not (":" in value and port.isascii() and port.isdecimal() and int(port[:6]) < 65536):
        raise click.BadParameter(f"{value!r} is not HOST:PORT.", param_hint="--scheduler")
    return value


timeout = click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for each answer.",
)
_socket = click.option(
    "--socket",
    default=INSPECT_SOCKET,
    show_default=True,
    metavar="PATH",
    envvar="KOORD_INSPECT_SOCKET",
    help="The socket on which koord-qosd answers koordctl.",
)
_kubeconfig = click.option(
    "--kubeconfig",
    default="",
    metavar="FILE",
    help="How to reach the API server.  [default: $KUBECONFIG, else ~/.kube/config]",
)
_scheduler = click.option(
    "--scheduler",
    default="",
    metavar="HOST:PORT",
    callback=_address,
    help="Ask koord-scheduler there, as through kubectl port-forward.  [default: its leader, found by its Lease]",
)
_scheduler_token = click.option(
    "--scheduler-token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The token that koord-scheduler's pages want, if it has --metrics-token-file.",
)
_context = click.option("--context", default="", metavar="NAME", help="The kubeconfig's context.")
wait = click.option(
    "--timeout",
    "wait_s",
    type=click.FloatRange(min=1),
    default=180.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a service, and kubelet after its restart, may take to be well.",
)
yes = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
force = click.option(
    "--force", is_flag=True, help="Restart kubelet although that ends pods: see kubelet-restart in koordctl doctor."
)
runtime = click.option(
    "--runtime", default="", metavar="PATH", help="The container runtime's socket.  [default: as kubelet has it]"
)


def daemon(command: _Command) -> _Command:
    """Adds ``--socket`` and ``--timeout``: which daemon is asked, and how long for."""
    decorated: _Command = _socket(timeout(command))
    return decorated


def cluster(command: _Command) -> _Command:
    """Adds ``--kubeconfig`` and ``--context``: which cluster is asked, chosen as kubectl does."""
    decorated: _Command = _kubeconfig(_context(command))
    return decorated


def scheduler(command: _Command) -> _Command:
    """Adds ``--scheduler`` and ``--scheduler-token-file``: where koord-scheduler is asked, and as whom."""
    decorated: _Command = _scheduler(_scheduler_token(command))
    return decorated


def root(help_text: str) -> Callable[[_Command], _Command]:
    """Adds ``--root``: where the node's files are."""
    directory = click.Path(exists=True, file_okay=False, path_type=Path)
    return click.option("--root", type=directory, default=Path("/"), show_default=True, help=help_text)


def _namespace(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if value != NAMESPACE:  # which takes no import to know
        from koordctl.cluster.names import check_namespace  # noqa: PLC0415

        check_namespace(value, "--koord-namespace")
    return value


koord_namespace = click.option(
    "--koord-namespace",
    default=NAMESPACE,
    show_default=True,
    metavar="NAME",
    callback=_namespace,
    help="The namespace of koord-manager and its slo-controller-config.",
)


def terminal_width() -> int | None:
    """Returns how many columns the terminal has that standard output is; None if it is no terminal."""
    if not sys.stdout.isatty():
        return None
    return os.get_terminal_size(sys.stdout.fileno()).columns


def listing(
    place: str | Lookup, help_text: str = "wide: with more columns, and whole on any terminal."
) -> Callable[[_Command], _Command]:
    """Adds ``-o table|wide|json|yaml``, ``--fields`` and ``--sort-by``, of which the command gets a ``layout``.

    ``place``: where the listing is (``module:NAME`` below ``koordctl``). An unknown name ends the command before it
    does anything.
    """

    def lookup(parameters: Mapping[str, Any]) -> Listing[Any]:
        if not isinstance(place, str):
            return place(parameters)
        module, _, name = place.partition(":")
        rows: Listing[Any] = getattr(import_module(f"koordctl.{module}"), name)
        return rows

    def names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",") if parameter.name == "fields" else ("", "", incomplete)
        try:
            fields = lookup(context.params).fields
        except click.UsageError:
            return []
        return [f"{before}{comma}{field.name}" for field in fields if field.name.startswith(last)]

    def decorate(command: _Command) -> _Command:
        @wraps(command)
        def run(output: str, fields: str | None, sort_by: str | None, **others: Any) -> Any:
            from koordctl.fields import ListingLayout  # noqa: PLC0415

            rows = lookup({"output": output, "fields": fields, "sort_by": sort_by, **others})
            columns = [] if fields is None else [_field(rows, name.strip(), "--fields") for name in fields.split(",")]
            order = None if sort_by is None else _field(rows, sort_by.removeprefix("-"), "--sort-by")
            is_descending = sort_by is not None and sort_by.startswith("-")
            width = terminal_width() if output == "table" else None
            return command(layout=ListingLayout(rows, output, tuple(columns), order, is_descending, width), **others)

        chosen = _output("table", "wide", "json", "yaml", help_text=help_text)
        fields = click.option(
            "--fields", metavar="NAME,...", shell_complete=names, help="Only these fields, in this order; in json, too."
        )
        order = click.option(
            "--sort-by", metavar="[-]NAME", shell_complete=names, help="Sort by this field; -NAME: the greatest first."
        )
        decorated: _Command = chosen(fields(order(run)))
        return decorated

    return decorate


def _field(rows: Listing[Any], name: str, option: str) -> ListingField[Any]:
    from koordctl.fields import UnknownField  # noqa: PLC0415

    try:
        return rows.field(name)
    except UnknownField as error:
        raise click.BadParameter(f"{error}.", param_hint=option) from error


def _output(*choices: str, help_text: str | None = None) -> Callable[[_Command], _Command]:
    return click.option(
        "-o", "--output", type=click.Choice(choices), default="table", show_default=True, help=help_text
    )


output = _output("table", "json", "yaml")
"""``-o``, of a command without a listing."""
