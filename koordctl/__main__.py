"""koordctl's command line.

Commands import what they need when they run, so that ``--help`` and completion cost a few milliseconds.
Exit codes are part of the interface: see ``EXIT_CODES``.
"""

from __future__ import annotations

import sys

import click

OK = 0
USAGE = 1
UNREACHABLE = 2
REFUSED = 3

EXIT_CODES = """
\b
Exit codes:
  0  done
  1  wrong usage (unknown option, bad value)
  2  the daemon cannot be reached: not running, another socket, no permission
  3  the daemon answered with an error
"""


@click.group(epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def cli() -> None:
    """Show what Koord does on this node."""


@cli.command(epilog=EXIT_CODES)
@click.argument("name", required=False, default="")
@click.option("-n", "--namespace", default="", help="Only pods of this namespace.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml"]),
    default="table",
    show_default=True,
    help="wide: one line per cgroup value, desired and actual, with file and reason.",
)
@click.option(
    "--socket",
    default="/run/koord/qosd-inspect.sock",
    show_default=True,
    metavar="PATH",
    envvar="KOORD_INSPECT_SOCKET",
    help="koord-qosd's NodeInspect socket.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the answer.",
)
def pods(name: str, namespace: str, output: str, socket: str, timeout_s: float) -> None:
    """Pods with QoS, priority and, for each container, desired against actual cgroup values.

    NAME limits the list to pods of that name.
    """
    from koordctl import client  # noqa: PLC0415 - grpc is imported by commands that call a daemon
    from koordctl import pods as view  # noqa: PLC0415

    answer = client.list_pods(socket, namespace, name, timeout_s)
    click.echo(view.render(answer, output))
    if output in ("table", "wide"):
        for warning in answer.warnings:
            click.echo(f"warning: {warning}", err=True)


def main() -> None:
    """The console script; turns click's and our own errors into the documented exit codes."""
    try:
        code = cli.main(prog_name="koordctl", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        sys.exit(USAGE)
    except click.ClickException as error:
        click.echo(f"koordctl: {error.format_message()}", err=True)
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else OK)


if __name__ == "__main__":
    main()
