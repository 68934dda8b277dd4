"""The edits that hooks may make, and how they are kept: one per field, each with the sentence saying why.

Entries of the ``unified`` map and annotations are edited by their key. Invariant: a key of kubelet's
(``io.kubernetes.…``) is never edited.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from types import MappingProxyType

import msgspec

from koord.model.crifields import NUMBERS, Field
from koord.model.formulas import Inputs

KUBELET_PREFIX = "io.kubernetes."
_AS_IT_STANDS: Inputs = MappingProxyType({})


class ForbiddenEdit(ValueError):
    """A hook tried to edit a key that belongs to kubelet."""


class Edit(msgspec.Struct, frozen=True):
    """One wish: ``field`` (with ``key`` for maps) becomes ``value``, because ``why``. ``hook`` is the name of its hook.

    ``computed``: the formula's name and inputs (koord.model.formulas); empty for a value taken as it stands.
    ``factor``: ``value`` is but a guess; wanted is this multiple of the value that another writer left in the cgroup's
    file.
    """

    field: Field
    value: int | str
    why: str
    key: str = ""
    hook: str = ""
    computed: Inputs = _AS_IT_STANDS
    factor: Fraction | None = None

    def __post_init__(self) -> None:
        if self.key.startswith(KUBELET_PREFIX):
            raise ForbiddenEdit(f"{self.hook or 'a hook'} may not edit {self.key!r}: it is kubelet's")

    @property
    def name(self) -> str:
        """Returns the field's name for people: ``cpu_quota``, ``memory.high``, ``annotation rdt.…``."""
        if self.field is Field.UNIFIED:
            return self.key
        return f"annotation {self.key}" if self.field is Field.ANNOTATION else self.field.value


class Abstention(msgspec.Struct, frozen=True):
    """A field that a hook would edit if it could, and why it cannot.

    ``stays``: the value of an earlier edit stays; else the field goes back to the other writer's.
    """

    field: Field
    why: str
    stays: bool
    hook: str = ""


class Edits(msgspec.Struct, frozen=True):
    """The edits that all hooks together make of one container or sandbox, and the problems of the pod's own wishes."""

    items: tuple[Edit, ...] = ()
    problems: tuple[str, ...] = ()
    abstentions: tuple[Abstention, ...] = ()
    """The abstentions of fields that no hook edits."""

    def get(self, field: Field, key: str = "") -> Edit | None:
        return next((edit for edit in self.items if (edit.field, edit.key) == (field, key)), None)

    def concern(self, field: Field) -> bool:
        """Returns whether a hook decides ``field``, be it by leaving it alone."""
        return self.get(field) is not None or any(one.field is field for one in self.abstentions)

    @property
    def without_annotating(self) -> Edits:
        """Returns the edits less those of hooks that also edit an annotation: no runtime keeps one of an update."""
        annotating = {edit.hook for edit in self.items if edit.field is Field.ANNOTATION}
        if not annotating:
            return self
        return Edits(tuple([edit for edit in self.items if edit.hook not in annotating]), self.problems)

    @property
    def without_limits(self) -> Edits:
        """Returns the edits without shares, quota, memory limit, and the annotations of the hooks that edit these."""
        limiting = {edit.hook for edit in self.items if edit.field in NUMBERS}
        kept = [
            edit
            for edit in self.items
            if edit.field not in NUMBERS and not (edit.field is Field.ANNOTATION and edit.hook in limiting)
        ]
        return Edits(tuple(kept), self.problems)

    @property
    def limits(self) -> Edits:
        """Returns the edits of shares, quota and memory limit alone."""
        return Edits(tuple([edit for edit in self.items if edit.field in NUMBERS]))


def merge(parts: Iterable[Edits]) -> Edits:
    """Returns all edits of ``parts``; a later one replaces an earlier one of the same field and key."""
    kept: dict[tuple[Field, str], Edit] = {}
    problems: list[str] = []
    abstentions: list[Abstention] = []
    for part in parts:
        problems.extend(part.problems)
        abstentions.extend(part.abstentions)
        for edit in part.items:
            kept[(edit.field, edit.key)] = edit
    edited = {name for name, _ in kept}
    unedited = tuple([one for one in abstentions if one.field not in edited])
    return Edits(tuple(kept.values()), tuple(dict.fromkeys(problems)), unedited)
