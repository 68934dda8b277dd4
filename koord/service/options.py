"""Options of a program: one frozen dataclass, whose fields say all that there is to each of them.

    @dataclass(frozen=True, slots=True)
    class Options:
        tick_interval: float = option(1.0, "seconds between two ticks", bounds=(lambda s: s > 0, "must be more than 0"))

    PROGRAM = Program("koord-x", "Does x.", Options)
    options = PROGRAM.load(PROGRAM.parse(sys.argv[1:]))

The flag is the field's name with dashes if no other is said, and also the key in ``--config`` (YAML). Command line over
file over default. Invariant: nothing is guessed. What is wrong is an ``OptionError``, or for flags of the ``PLAIN``
style argparse's usage and exit code 2; it names the flag, or the file and the key, and the value.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeVar

import koord
from koord.service import optionvalues
from koord.service.unixsocket import without_scheme

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Options = TypeVar("Options", bound="DataclassInstance")
Bounds = tuple[Callable[[Any], object], str]
"""Is the value within, and what is said of one that is not."""


class OptionError(Exception):
    """A flag or a key of the configuration file that cannot be used; the text says where, what and why."""


class Style(NamedTuple):
    """How flags are spelled, and how a complaint is worded. ``is_go``: a text for every type, also in YAML."""

    is_go: bool
    dashes: tuple[str, ...]
    bad_flag: str
    bad_key: str
    unknown_key: str
    no_file: str


PLAIN = Style(
    False, ("--",), "argument --{flag}: {value!r} {why}", "{file}: {flag} = {value!r}: {why}",
    "{file}: {flag}: is no option; there are {known}", "{file}: does not exist",
)  # fmt: skip
"""``--dry-run``, ``--no-dry-run``; argparse's usage and exit code 2 for an error."""
GO = Style(
    True, ("--", "-"), "--{flag}={value!r}: {why}", "{file}: {flag}={value!r}: {why}",
    "{file}: unknown key {flag!r}", "--config={file!r}: no such file",
)  # fmt: skip
"""As Go's programs have them: ``-flag=value``, ``--bypass=false``, and one line for an error."""


class Option(NamedTuple):
    """A row of the table. ``default_text``: the default, for people; "" = none. ``live``: taken over at a reload.

    ``kinds``: what YAML must give; () = any scalar or list, which is read as the flag's text would be.
    """

    flag: str
    name: str
    help: str
    default_text: str
    parse: Callable[[Any], object]
    kinds: tuple[type, ...]
    choices: Sequence[str]
    bounds: Bounds | None
    metavar: str
    live: bool

    def value(self, text: object) -> object:
        """What the text, or YAML's value, means. Raises ValueError with the why."""
        value = self.parse(text)
        if self.choices and value not in self.choices:
            raise ValueError(f"must be one of {', '.join(self.choices)}")
        if self.bounds and not self.bounds[0](value):
            raise ValueError(self.bounds[1])
        return value

    @property
    def arguments(self) -> dict[str, Any]:
        """How argparse takes the flag."""
        help_text = f"{self.help} (default: {self.default_text})" if self.default_text else self.help
        if self.kinds == (bool,):
            return {"action": argparse.BooleanOptionalAction, "help": help_text}
        is_switch = self.parse is optionvalues.boolean
        return {"metavar": self.metavar, "help": help_text, **({"nargs": "?", "const": "true"} if is_switch else {})}


def option(
    default: Any, help_text: str, *, parse: Callable[[str], Any] | None = None, flag: str = "",
    choices: Sequence[str] = (), bounds: Bounds | None = None, metavar: str = "VALUE", live: bool = False,
) -> Any:  # fmt: skip
    """A field of the dataclass. With ``parse`` the default is a text; else flag and YAML are of the default's type."""

    def row(entry: Field[Any], style: Style) -> Option:
        parser, kinds = (parse, ()) if parse else _of_type(default, style.is_go)
        default_text = _text_of(default, style.is_go)
        name = flag or entry.name.replace("_", "-")
        return Option(name, entry.name, help_text, default_text, parser, kinds, choices, bounds, metavar, live)

    value = parse(default) if parse else default
    return field(default_factory=lambda: value, metadata={"row": row})


def _of_type(default: object, is_go: bool) -> tuple[Callable[[Any], object], tuple[type, ...]]:
    """How a value of the default's type is read, and of which types it is in YAML."""
    if is_go:
        return optionvalues.boolean if isinstance(default, bool) else _of_type(default, False)[0], ()
    match default:
        case bool() | str():
            return type(default), (type(default),)
        case Path():
            return (lambda text: Path(without_scheme(text))), (str,)
        case float():
            return optionvalues.number(float), (int, float)
    return optionvalues.number(int), (int,)


def _text_of(default: object, is_go: bool) -> str:
    if isinstance(default, bool):
        return (("off", "on"), ("false", "true"))[is_go][default]
    return str(default)


class CommandLine(NamedTuple):
    """The values of the flags, by field, and the file; kept to be merged again at a reload."""

    values: Mapping[str, object]
    config_file: str = ""


class Program(Generic[Options]):
    """A program ``name`` and its options, each a field made by ``option``."""

    def __init__(self, name: str, description: str, options: type[Options], style: Style = PLAIN) -> None:
        self._name, self._description, self._options, self._style = name, description, options, style
        self.table: dict[str, Option] = {}
        """The options by flag, in their order."""
        for entry in fields(options):
            row: Option = entry.metadata["row"](entry, style)
            self.table[row.flag] = row

    def parse(self, arguments: Sequence[str]) -> CommandLine:
        """``arguments`` without the program's name. ``--help`` and ``--version`` print and raise SystemExit(0)."""
        parser = self._parser()
        texts = vars(parser.parse_args(list(arguments)))
        config_file = texts.pop("config", "")
        return CommandLine(
            {self.table[flag].name: self._of_flag(parser, flag, texts[flag]) for flag in texts}, config_file
        )

    def load(self, command_line: CommandLine) -> Options:
        """The command line over the file. Raises OptionError; a named file that does not exist is one too."""
        values = self._of_file(command_line.config_file) if command_line.config_file else {}
        return self._options(**{**values, **command_line.values})

    def fixed_changes(self, old: Options, new: Options) -> list[str]:
        """The flags that differ but take effect only at the next start."""
        changed = [row for row in self.table.values() if getattr(old, row.name) != getattr(new, row.name)]
        return [row.flag for row in changed if not row.live]

    def _of_flag(self, parser: argparse.ArgumentParser, flag: str, text: str) -> object:
        try:
            return self.table[flag].value(text)
        except ValueError as error:
            message = self._style.bad_flag.format(flag=flag, value=text, why=error)
            if not self._style.is_go:
                parser.error(message)
            raise OptionError(message) from error

    def _of_file(self, file: str) -> dict[str, object]:
        from koord.service import config  # noqa: PLC0415 - not paid for without a file

        try:
            document = config.read_yaml(Path(file))
        except FileNotFoundError as error:
            raise OptionError(self._style.no_file.format(file=file)) from error
        except config.ConfigError as error:
            raise OptionError(str(error)) from error
        known = ", ".join(sorted(self.table))
        for key in document:
            if key not in self.table:
                raise OptionError(self._style.unknown_key.format(file=file, flag=key, known=known))
        return {self.table[key].name: self._of_key(file, key, value) for key, value in document.items()}

    def _of_key(self, file: str, key: str, value: object) -> object:
        row = self.table[key]
        try:
            if row.kinds:
                optionvalues.check_kind(value, row.kinds)
            else:
                value = optionvalues.text(value)
            return row.value(value)
        except ValueError as error:
            raise OptionError(self._style.bad_key.format(file=file, flag=key, value=value, why=error)) from error

    def _parser(self) -> argparse.ArgumentParser:
        is_go = self._style.is_go
        parser = (_OneLine if is_go else argparse.ArgumentParser)(
            prog=self._name,
            usage=f"{self._name} [--flag=value …]",
            description=self._description,
            allow_abbrev=False,
            add_help=False,
            argument_default=argparse.SUPPRESS,
        )

        def add(flag: str, *more: str, **how: Any) -> None:
            parser.add_argument(*[dashes + flag for dashes in self._style.dashes], *more, dest=flag, **how)

        version = f"{self._name} {koord.__version__}"
        add("help", "-h", action="help", help="print this and exit")
        add("version", action="version", version=version, help="print the version and exit")
        add("config", metavar="FILE", help="YAML file with the same names as keys; the command line wins")
        for flag, row in self.table.items():
            add(flag, **row.arguments, **({"choices": row.choices} if row.choices and not is_go else {}))
        return parser


class _OneLine(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OptionError(f"{message}; see --help")
