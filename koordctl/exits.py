"""Exit codes, which are part of the interface, and the errors that end in them."""

from __future__ import annotations

import click

OK, USAGE, UNREACHABLE, REFUSED, FAILED = range(5)
INTERRUPTED = 130

EPILOG = """
\b
Exit codes:
  0  done
  1  wrong usage: an unknown option, a bad value
  2  koord-qosd or the API server cannot be reached: not running, another
     socket, no permission
  3  refused: the daemon or the API server answered with an error, or does not
     know what was asked for, or this node cannot be changed
  4  something is wrong: doctor found a failure, restore left a file, lint has
     something to say, install was rolled back, uninstall is not done
"""


class NoAnswer(click.ClickException):
    """koord-qosd, or the API server, does not answer."""

    exit_code = UNREACHABLE


class Refused(click.ClickException):
    """koord-qosd or the API server refused, or this node cannot be changed."""

    exit_code = REFUSED


class Failed(click.ClickException):
    """The command was carried out, and its outcome is bad."""

    exit_code = FAILED
