"""Kubernetes' strategic merge patch, as it merges into a Pod: what ``patch`` of a ClusterColocationProfile is.

Objects merge by key, null deletes, and scalars replace. The lists of ``MERGE_KEYS`` merge by the value of that key of
their items, ``finalizers`` as a set, and every other list is replaced. As kubectl does it, items that are new come
before those that the patch does not name; ``$setElementOrder/<list>`` says otherwise. Directives: ``$patch: replace``
and ``$patch: delete`` in an object or an item of a list, ``$retainKeys``, ``$deleteFromPrimitiveList/<list>``.
Sources: k8s.io/apimachinery/pkg/util/strategicpatch; the patch strategies and merge keys of ``k8s.io/api/core/v1``.

Invariant: neither document is changed, and no directive is left in the result. A patch without directives says the same
twice: merged again, it changes nothing.
Fails with PatchError, which says where the patch is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from koord.model.schema import child, clip

MERGE_KEYS: Mapping[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "env": "name",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "ownerReferences": "uid",
}
"""By the name of the list."""
SETS = ("finalizers",)
"""Lists of scalars, of which none occurs twice."""

_PATCH, _RETAIN_KEYS = "$patch", "$retainKeys"
_ORDER, _DELETE = "$setElementOrder/", "$deleteFromPrimitiveList/"
_REPLACE_IT, _DELETE_IT = "replace", "delete"
_DROPPED = object()

Object = Mapping[str, Any]
Identity = Callable[[Any], Any]
"""Of a list's items: what makes two of them the same."""


class PatchError(ValueError):
    """The patch is wrong at ``path``; ``why`` says how."""

    def __init__(self, path: str, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(f"{path}: {why}" if path else why)


class _Lists(NamedTuple):
    """A list that was merged, and those that it was merged of."""

    result: list[Any]
    patch: list[Any]
    original: list[Any]


class _Members(NamedTuple):
    """A patch of an object, taken apart by the names of the fields."""

    values: Object
    removals: Object
    """Of lists of scalars: those that go."""
    orders: Object
    """Of lists: the order that they are to have."""


def merge(original: Object, patch: Object, path: str = "") -> dict[str, Any]:
    """Returns ``original`` with ``patch`` merged into it; ``path``: where both are, for messages. Raises PatchError."""
    if _PATCH in patch:
        return _whole(patch, path)
    members = _members(patch)
    merged = _retained(original, patch, members, path)
    for field, removal in members.removals.items():
        if field in merged:
            gone = _list(removal, child(path, _DELETE + field))
            merged[field] = [item for item in merged[field] or () if item not in gone]
    for field, value in members.values.items():
        changed = _DROPPED if value is None else _member(merged.get(field), value, field, child(path, field))
        if changed is _DROPPED:
            merged.pop(field, None)
        else:
            merged[field] = changed
    for field, order in members.orders.items():
        if merged.get(field) is not None:
            lists = _Lists(merged[field], members.values.get(field) or [], original.get(field) or [])
            merged[field] = _reordered(lists, order, field, path)
    return merged


def _whole(patch: Object, path: str) -> dict[str, Any]:
    """Returns what is left of an object by its ``$patch`` directive."""
    return {} if _directive(patch, path) == _DELETE_IT else _plain_object(patch, path)


def _members(patch: Object) -> _Members:
    values = {key: value for key, value in patch.items() if not key.startswith((_ORDER, _DELETE, _RETAIN_KEYS))}
    removals = {key.removeprefix(_DELETE): value for key, value in patch.items() if key.startswith(_DELETE)}
    orders = {key.removeprefix(_ORDER): value for key, value in patch.items() if key.startswith(_ORDER)}
    return _Members(values, removals, orders)


def _retained(original: Object, patch: Object, members: _Members, path: str) -> dict[str, Any]:
    """A copy of ``original`` with the keys that ``$retainKeys`` names, or with all if there is no such directive."""
    if _RETAIN_KEYS not in patch:
        return dict(original)
    place = child(path, _RETAIN_KEYS)
    kept = _list(patch[_RETAIN_KEYS], place)
    for field, value in members.values.items():
        if value is not None and field not in kept:
            raise PatchError(place, f"does not name {field}, which the patch sets")
    return {key: value for key, value in original.items() if key in kept}


def _member(original: Any, value: Any, field: str, path: str) -> Any:
    if isinstance(original, Mapping) and isinstance(value, Mapping):
        return merge(original, value, path)
    if isinstance(value, list):
        return _merged_list(original if isinstance(original, list) else [], value, field, path)
    return _plain(value, path)


def _merged_list(original: Sequence[Any], patch: Sequence[Any], field: str, path: str) -> list[Any]:
    if field in SETS:
        both = list(dict.fromkeys([*original, *[_scalar(item, path) for item in patch]]))
        return _in_order(both, patch, original, _itself)
    if field not in MERGE_KEYS:
        return _plain_list(patch, path)
    identity = _by(MERGE_KEYS[field], path)
    directives = [(_directive(item, path), item) for item in patch if _has_directive(item)]
    plain = [item for item in patch if not _has_directive(item)]
    if any(directive == _REPLACE_IT for directive, _ in directives):
        return _plain_list(plain, path)
    gone = [identity(item) for _, item in directives]
    kept = [item for item in original if identity(item) not in gone]
    return _in_order(_merged_items(kept, plain, identity, path), plain, kept, identity)


def _merged_items(original: Sequence[Any], patch: Sequence[Any], identity: Identity, path: str) -> list[Any]:
    """Merges the items by key. Where several items of ``original`` have the same key, the first is merged with; all of
    them stay.
    """
    items = list(original)
    for item in patch:
        key = identity(item)
        place = f"{path}[{key}]"
        index = next((index for index, each in enumerate(items) if identity(each) == key), None)
        if index is None:
            items.append(_plain_object(item, place))
        else:
            items[index] = merge(items[index], item, place)
    return items


def _reordered(lists: _Lists, order: Any, field: str, path: str) -> list[Any]:
    """The list by ``$setElementOrder``, which must name whatever the patch adds to it or changes of it."""
    place = child(path, _ORDER + field)
    identity = _by(MERGE_KEYS[field], place) if field in MERGE_KEYS else _itself
    listed = _list(order, place)
    names = [identity(item) for item in listed]
    for item in _list(lists.patch, child(path, field)):
        if not _has_directive(item) and identity(item) not in names:
            raise PatchError(place, f"does not name {clip(identity(item))}, which the patch has")
    return _in_order(lists.result, listed, lists.original, identity)


def _in_order(items: Sequence[Any], first: Sequence[Any], original: Sequence[Any], identity: Identity) -> list[Any]:
    """Returns ``items`` with those of ``first`` in its order, the others in that of ``original``.

    Where an item of the one meets an item of the other, that which stood before the other in ``original`` goes first;
    without such a place it is the one of ``first``.
    """
    places, wanted = _places(original, identity), _places(first, identity)
    named = sorted([item for item in items if identity(item) in wanted], key=lambda item: wanted[identity(item)])
    others = [item for item in items if identity(item) not in wanted]
    result: list[Any] = []
    while named and others:
        left, right = places.get(identity(others[0])), places.get(identity(named[0]))
        source = others if left is not None and right is not None and left < right else named
        result.append(source.pop(0))
    return [*result, *named, *others]


def _places(items: Sequence[Any], identity: Identity) -> dict[Any, int]:
    """Returns the first place of each item."""
    return {identity(item): place for place, item in reversed(list(enumerate(items)))}


def _itself(item: Any) -> Any:
    """Identity of scalars."""
    return item


def _by(key: str, path: str) -> Identity:
    """Identity of objects by the value of their ``key``."""

    def identity(item: Any) -> Any:
        if not isinstance(item, Mapping):
            raise PatchError(path, f"{clip(item)} is not an object with a {key}")
        return _scalar(item.get(key), f"{path}: {key}")

    return identity


def _has_directive(item: Any) -> bool:
    return isinstance(item, Mapping) and _PATCH in item


def _directive(item: Object, path: str) -> str:
    """Returns the value of ``$patch``."""
    directive = item[_PATCH]
    if directive not in (_REPLACE_IT, _DELETE_IT):
        raise PatchError(child(path, _PATCH), f"{clip(directive)} is neither {_REPLACE_IT} nor {_DELETE_IT}")
    return str(directive)


def _plain(value: Any, path: str) -> Any:
    """A new value without nulls and directives; ``_DROPPED`` for one that is to be deleted."""
    if isinstance(value, Mapping):
        is_deleted = _PATCH in value and _directive(value, path) == _DELETE_IT
        return _DROPPED if is_deleted else _plain_object(value, path)
    return _plain_list(value, path) if isinstance(value, list) else value


def _plain_object(value: Object, path: str) -> dict[str, Any]:
    members = {
        key: _plain(item, child(path, key))
        for key, item in value.items()
        if item is not None and not _is_directive(key)
    }
    return {key: item for key, item in members.items() if item is not _DROPPED}


def _plain_list(items: Sequence[Any], path: str) -> list[Any]:
    plain = [_plain(item, f"{path}[{index}]") for index, item in enumerate(items)]
    return [item for item in plain if item is not _DROPPED]


def _is_directive(key: str) -> bool:
    return key in (_PATCH, _RETAIN_KEYS) or key.startswith((_ORDER, _DELETE))


def _scalar(value: Any, path: str) -> Any:
    if value is None or isinstance(value, Mapping | list):
        raise PatchError(path, f"{clip(value)} is neither a text nor a number")
    return value


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise PatchError(path, f"{clip(value)} is not a list")
    return value
