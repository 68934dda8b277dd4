"""``koordctl completion``."""

from __future__ import annotations

import click

from koordctl import guide


@click.command(short_help=guide.summary("completion"), epilog=guide.examples("completion"))
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the shell's completion script.

    \b
    bash:  eval "$(koordctl completion bash)"
    zsh:   eval "$(koordctl completion zsh)"
    fish:  koordctl completion fish | source
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    chosen = get_completion_class(shell)
    assert chosen is not None  # click knows the three
    click.echo(chosen(context.find_root().command, {}, "koordctl", "_KOORDCTL_COMPLETE").source())
