"""Reads YAML that people write: every error names the file, the path inside it and the value.

Keys are the flags' or the API's own names. Invariant: nothing is guessed; an unknown key or a wrong type is a
ConfigError, never ignored, so that a typing error cannot silently mean "default".
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class ConfigError(ValueError):
    """A configuration file is unreadable or says something that has no meaning."""

    def __init__(self, file: Path | str, path: str, value: object, why: str) -> None:
        self.file, self.path, self.value, self.why = str(file), path, value, why
        where = f"{file}: {path}" if path else str(file)
        shown = "" if value is None else f" = {value!r}"
        super().__init__(f"{where}{shown}: {why}")


def read_yaml(file: Path) -> Mapping[str, Any]:
    """Returns the mapping in ``file``; {} for an empty file. Raises ConfigError or FileNotFoundError."""
    return parse_yaml(file, read_text(file))


def read_text(file: Path, max_bytes: int | None = None) -> str:
    """Returns the text of ``file``, at most ``max_bytes``. Raises ConfigError or FileNotFoundError."""
    try:
        with file.open("rb") as opened:
            content = opened.read(-1 if max_bytes is None else max_bytes + 1)
        if max_bytes is not None and len(content) > max_bytes:
            raise ConfigError(file, "", None, f"has more than {max_bytes} bytes")
        return content.decode()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(file, "", None, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(file, "", None, f"is not UTF-8 at byte {error.start}") from error


def parse_yaml(file: Path | str, text: str) -> Mapping[str, Any]:
    """Returns the mapping that ``text`` of ``file`` says; {} for an empty text. Raises ConfigError."""
    import yaml  # noqa: PLC0415 - 15 ms that a process without a configuration file need not pay

    try:
        document = yaml.safe_load(text)
    except RecursionError as error:
        raise ConfigError(file, "", None, "is nested too deeply") from error
    except yaml.YAMLError as error:
        raise ConfigError(file, "", None, f"is not YAML: {' '.join(str(error).split())}") from error
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        raise ConfigError(file, "", document, "must be a mapping")
    return document
