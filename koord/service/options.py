"""Options of a program: one frozen dataclass, each of whose fields says all about one option.

    @dataclass(frozen=True, slots=True)
    class Options:
        tick_interval: float = option(1.0, "seconds between two ticks", bounds=(lambda s: s > 0, "must be more than 0"))

    PROGRAM = Program("koord-x", "Does x.", Options)
    options = PROGRAM.load(PROGRAM.parse(sys.argv[1:]))

The flag is the field's name with dashes if no other is said, and also the key in ``--config`` (YAML). Command line over
file over default. Invariant: nothing is guessed. A bad key of the file is an ``OptionError``, and so is a bad
flag of the ``GO`` style; one of the ``PLAIN`` style gets argparse's usage and exit code 2. The message names the flag,
or the file and the key, and the value.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, field, fields
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeVar

import koord
from koord.service import optionvalues
from koord.service.unixsocket import without_scheme

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Options = TypeVar("Options", bound="DataclassInstance")
Bounds = tuple[Callable[[Any], object], str]
"""Whether a value is within, and the message about one that is not."""


class OptionError(Exception):
    """A flag or a key of the configuration file that cannot be used; the text says where, what and why."""


class Style(Enum):
    """How flags are spelled."""

    PLAIN = ("--",)
    """``--dry-run``, ``--no-dry-run``; argparse's usage and exit code 2 for an error."""
    GO = ("--", "-")
    """As Go's programs have them: ``-flag=value``, ``--bypass=false``; a text for every type, also in YAML."""


class Option(NamedTuple):
    """A row of the table. ``default_text``: the default, for people; "" = none. ``live``: taken over at a reload;
    ``short``: another flag, of one letter.

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
    short: str

    def value(self, text: object) -> object:
        """Returns the meaning of the text, or of YAML's value. Raises ValueError with the why."""
        value = self.parse(text)
        if self.choices and value not in self.choices:
            raise ValueError(f"must be one of {', '.join(self.choices)}")
        if self.bounds and not self.bounds[0](value):
            raise ValueError(self.bounds[1])
        return value

    def of_flag(self, text: str) -> object:
        """Returns the meaning of the flag's text, as argparse's ``type``."""
        try:
            return self.value(text)
        except ValueError as error:
            raise argparse.ArgumentError(None, f"--{self.flag}={text!r}: {error}") from error

    @property
    def arguments(self) -> dict[str, Any]:
        """Returns the keywords of argparse's ``add_argument``."""
        help_text = f"{self.help} (default: {self.default_text})" if self.default_text else self.help
        if self.kinds == (bool,):
            return {"action": argparse.BooleanOptionalAction, "help": help_text}
        switch = {"nargs": "?", "const": "true"} if self.parse is optionvalues.boolean else {}
        return {"metavar": self.metavar, "help": help_text, "type": self.of_flag, **switch}


def option(
    default: Any, help_text: str, *, parse: Callable[[str], Any] | None = None, flag: str = "",
    choices: Sequence[str] = (), bounds: Bounds | None = None, metavar: str = "VALUE", live: bool = False,
    short: str = "",
) -> Any:  # fmt: skip
    """Makes a field of the dataclass. With ``parse`` the default is a text; else flag and YAML are of its type."""

    def row(entry: Field[Any], style: Style) -> Option:
        parser, kinds = (parse, ()) if parse else _of_type(default, style)
        default_text = _text_of(default, style)
        name = flag or entry.name.replace("_", "-")
        return Option(name, entry.name, help_text, default_text, parser, kinds, choices, bounds, metavar, live, short)

    value = parse(default) if parse else default
    return field(default_factory=lambda: value, metadata={"row": row})


def _of_type(default: object, style: Style) -> tuple[Callable[[Any], object], tuple[type, ...]]:
    """Returns how a value of the default's type is read, and its types in YAML."""
    if style is Style.GO:
        return optionvalues.boolean if isinstance(default, bool) else _of_type(default, Style.PLAIN)[0], ()
    match default:
        case bool() | str():
            return type(default), (type(default),)
        case Path():
            return (lambda text: Path(without_scheme(text))), (str,)
        case float():
            return optionvalues.number(float), (int, float)
    return optionvalues.number(int), (int,)


def _text_of(default: object, style: Style) -> str:
    if isinstance(default, bool):
        return (("off", "on") if style is Style.PLAIN else ("false", "true"))[default]
    return str(default)


class CommandLine(NamedTuple):
    """The values of the flags, by field, and the file; kept to be merged again at a reload."""

    values: Mapping[str, object]
    config_file: str = ""


class Program(Generic[Options]):
    """A program ``name`` and its options, each a field made by ``option``. ``config_help``: of ``--config``."""

    def __init__(
        self,
        name: str,
        description: str,
        options: type[Options],
        style: Style = Style.PLAIN,
        config_help: str = "YAML file with the same names as keys; the command line wins",
    ) -> None:
        self._name, self._description, self._options, self._style = name, description, options, style
        self._config_help = config_help
        self.table: dict[str, Option] = {}
        """The options by flag, in their order."""
        for entry in fields(options):
            row: Option = entry.metadata["row"](entry, style)
            self.table[row.flag] = row

    def parse(self, arguments: Sequence[str]) -> CommandLine:
        """Reads ``arguments``, without the program's name. ``--help`` and ``--version`` raise SystemExit(0)."""
        values = vars(self._parser().parse_args(list(arguments)))
        config_file = values.pop("config", "")
        return CommandLine({self.table[flag].name: value for flag, value in values.items()}, config_file)

    def load(self, command_line: CommandLine) -> Options:
        """Returns the command line over the file. Raises OptionError, also for a named file that does not exist."""
        values = self._of_file(command_line.config_file) if command_line.config_file else {}
        return self._options(**{**values, **command_line.values})

    def fixed_changes(self, old: Options, new: Options) -> list[str]:
        """Returns the flags that differ but take effect only at the next start."""
        changed = [row for row in self.table.values() if getattr(old, row.name) != getattr(new, row.name)]
        return [row.flag for row in changed if not row.live]

    def _of_file(self, file: str) -> dict[str, object]:
        from koord.service.config import ConfigError, read_yaml  # noqa: PLC0415 - not paid for without a file

        found = {}
        try:
            for key, value in read_yaml(Path(file)).items():
                row = self.table.get(key)
                if row is None:
                    raise ConfigError(file, key, None, f"is no option; there are {', '.join(sorted(self.table))}")
                try:
                    found[row.name] = row.value(_of_kind(row, value))
                except ValueError as error:
                    raise ConfigError(file, key, value, str(error)) from error
        except FileNotFoundError as error:
            raise OptionError(f"{file}: does not exist") from error
        except ConfigError as error:
            raise OptionError(str(error)) from error
        return found

    def _parser(self) -> argparse.ArgumentParser:
        parser = (_OneLine if self._style is Style.GO else argparse.ArgumentParser)(
            prog=self._name,
            usage=f"{self._name} [--flag=value …]",
            description=self._description,
            allow_abbrev=False,
            add_help=False,
            argument_default=argparse.SUPPRESS,
        )

        def add(flag: str, *more: str, **how: Any) -> None:
            parser.add_argument(*[dashes + flag for dashes in self._style.value], *more, dest=flag, **how)

        version = f"{self._name} {koord.__version__}"
        add("help", "-h", action="help", help="print this and exit")
        add("version", action="version", version=version, help="print the version and exit")
        add("config", metavar="FILE", help=self._config_help)
        for flag, row in self.table.items():
            add(flag, *([f"-{row.short}"] if row.short else []), **row.arguments)
        return parser


def _of_kind(row: Option, value: object) -> Any:
    """Returns YAML's ``value`` as the row's ``parse`` takes it. Raises ValueError."""
    if not row.kinds:
        return optionvalues.text(value)
    optionvalues.check_kind(value, row.kinds)
    return value


class _OneLine(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OptionError(f"{message}; see --help")
