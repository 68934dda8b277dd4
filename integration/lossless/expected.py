"""What a request must look like after the editor's edits, worked out on a decoder's JSON instead of the wire.

Which fields are edited is read from the proxy's own table (``runtimeproxy.cri.fields``), so that a field added there is
tested here or fails for want of a value. Everything else of the document stays as it was.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor

from integration.lossless.compare import Path
from integration.lossless.conversation import CREATE, RUN_POD
from integration.lossless.editor import MOVED, Wanted
from runtimeproxy.cri.fields import SANDBOX_OF_CREATE, TABLES
from runtimeproxy.cri.record import RECORD
from runtimeproxy.cri.requested import RECORD as REQUESTED
from runtimeproxy.cri.requested import REPORTED
from runtimeproxy.hooks.fields import EditableField, FieldForm


def owned(method: str) -> Iterator[tuple[str, EditableField, str]]:
    """Field, place and the method whose edits arrive there: a sandbox's are repeated for each of its containers."""
    yield from ((field, place, method) for field, place in TABLES[method].items())
    if method == CREATE:
        yield from ((field, place, RUN_POD) for field, place in SANDBOX_OF_CREATE.items())


def owned_paths(method: str, top: Descriptor) -> set[Path]:
    """Where the edits may change something; each path ends in the field by whose name the proxy's table knows it."""
    paths = {names(place, top): field for field, place, _ in owned(method)}
    misplaced = {path: field for path, field in paths.items() if path[-1] != field}
    assert misplaced == {}, f"{method}: the table has fields at places of other names"
    return set(paths)


def names(place: EditableField, top: Descriptor) -> Path:
    """The field names along the path of ``place``."""
    found = []
    message: Descriptor | None = top
    for number in place.path:
        assert message is not None, f"{top.full_name}: {place.path} leads through a field that is no message"
        field = message.fields_by_number[number]
        found.append(field.name)
        message = field.message_type
    return tuple(found)


def after_edits(
    method: str, top: Descriptor, decoded: Mapping[str, Any], parent: str, *, values_are_text: bool
) -> dict[str, Any]:
    """``decoded``, a request as a decoder's JSON has it, after the edits.

    ``parent``: the sandbox's cgroup before; ``values_are_text``: the decoder takes variables' values for strings.
    """
    result = copy.deepcopy(dict(decoded))
    for field, place, by in owned(method):
        *above, last = names(place, top)
        wanted = Wanted.at(by)
        if place.form in (FieldForm.INT, FieldForm.STRING):
            value = parent + MOVED if field == "cgroup_parent" else wanted.resources[field]
            _put(_descend(result, above), last, str(value) if value else None)
        elif place.form is FieldForm.MAP:
            _merge_map(_descend(result, above), last, wanted.entries[field])
        else:
            entries = {key: _json(value, values_are_text) for key, value in wanted.entries[field].items()}
            key_name, value_name = ("page_size", "limit") if field == "hugepage_limits" else ("key", "value")
            _merge_list(_descend(result, above), last, entries, (key_name, value_name))
    if method == RUN_POD:
        _record(decoded.get("config", {}).get("annotations", {}), _descend(result, ["config"]))
    if method == CREATE:
        _record_requested(decoded.get("config", {}).get("linux", {}).get("resources", {}), _descend(result, ["config"]))
    return result


def _record(before: Mapping[str, str], config: Any) -> None:
    """The proxy's own note of the sandbox's annotations that were edited."""
    after = config.get("annotations", {})
    edited = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    if edited:
        config.setdefault("annotations", {})[RECORD] = json.dumps(edited)


def _record_requested(before: Mapping[str, Any], config: Any) -> None:
    """The proxy's own note of the container's resources that kubelet reports and that were edited."""
    told = Wanted.at(CREATE).resources
    pairs = [(field, told[field], int(before.get(field, 0))) for field in REPORTED]
    edited = [f"{field}:{value}={requested}" for field, value, requested in pairs if value != requested]
    if edited:
        config.setdefault("annotations", {})[REQUESTED] = ";".join(edited)


def _descend(document: Any, path: list[str]) -> Any:
    for name in path:
        document = document.setdefault(name, {})
    return document


def _put(document: Any, name: str, value: Any) -> None:
    if value:
        document[name] = value
    else:
        document.pop(name, None)


def _merge_map(document: Any, name: str, entries: Mapping[str, Any]) -> None:
    merged = {**document.get(name, {}), **entries}
    _put(document, name, {key: value for key, value in merged.items() if value is not None})


def _merge_list(document: Any, name: str, entries: Mapping[str, Any], keys: tuple[str, str]) -> None:
    key_name, value_name = keys
    before = document.get(name, [])
    after = []
    for entry in before:
        key = entry.get(key_name)
        if key not in entries:
            after.append(entry)
        elif entries[key] is not None:
            after.append({**entry, value_name: entries[key]})
    met = {entry.get(key_name) for entry in before}
    after += [{key_name: key, value_name: value} for key, value in entries.items()
              if key not in met and value is not None]  # fmt: skip
    _put(document, name, after)


def _json(value: Any, values_are_text: bool) -> Any:
    if isinstance(value, bytes):
        return value.decode() if values_are_text else base64.b64encode(value).decode()
    return None if value is None else str(value)
