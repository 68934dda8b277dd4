"""Extensions: registered keys are read as strictly as the rest of NodeSLO, the others pass through."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from koord.model import schema, slo, slo_defaults, slo_extensions
from koord.model.problem import Problem
from koord.model.schema import SchemaError, json_name
from koord.model.slo_extensions import EXTENSIONS, KoordExtension


class Ceiling(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    enable: bool | None = None
    ceiling_percent: Annotated[int, Meta(ge=1, le=100)] | None = None


class Toy(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    cpu_suppress: Ceiling | None = None
    name: str | None = None


REGISTRY = {"toy": Toy}


def read(document: Any, told: list[str] | None = None, bad: list[Problem] | None = None) -> Any:
    return slo_extensions.read(
        document,
        "spec.extensions",
        None if told is None else told.append,
        None if bad is None else bad.append,
        REGISTRY,
    )


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"toy": 7}, "spec.extensions.toy: 7 is not an object"),
        ({"toy": {"cpuSuppress": []}}, "spec.extensions.toy.cpuSuppress: a list is not an object"),
        (
            {"toy": {"cpuSuppress": {"ceilingPercent": 0}}},
            "spec.extensions.toy.cpuSuppress.ceilingPercent: 0 is not in 1..100",
        ),
        ({"Object": {"toy": {"name": 1}}}, "spec.extensions.toy.name: 1 is not a string"),
    ],
)
def test_an_error_names_path_and_value(document: Any, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        read(document)
    assert str(caught.value) == message


def test_a_bad_leaf_counts_as_not_set_and_the_rest_counts() -> None:
    bad: list[Problem] = []
    found = read({"toy": {"cpuSuppress": {"ceilingPercent": 101, "enable": True}, "name": "a"}}, bad=bad)
    assert found == {"toy": Toy(cpu_suppress=Ceiling(enable=True), name="a")}
    assert [each.path for each in bad] == ["spec.extensions.toy.cpuSuppress.ceilingPercent"]


def test_an_unknown_key_below_a_registered_one_is_told() -> None:
    told: list[str] = []
    assert read({"toy": {"cpuSupress": {}}, "other": {"x": 1}}, told) == {"toy": Toy(), "other": {"x": 1}}
    assert told == ["spec.extensions.toy.cpuSupress"]


def test_what_others_read_passes_through_and_null_is_nothing() -> None:
    free = {"a": {"b": [1, {"c": None}]}, "d": 7, "e": "x"}
    assert read({**free, "toy": None}) == free


@pytest.mark.parametrize(
    ("over", "result"),
    [
        (None, Toy(cpu_suppress=Ceiling(enable=False, ceiling_percent=95))),
        (Toy(name="a"), Toy(cpu_suppress=Ceiling(enable=False, ceiling_percent=95), name="a")),
        (Toy(cpu_suppress=Ceiling(enable=True)), Toy(cpu_suppress=Ceiling(enable=True, ceiling_percent=95))),
    ],
)
def test_a_registered_extension_is_laid_over_its_defaults(over: Toy | None, result: Toy) -> None:
    base = {"toy": Toy(cpu_suppress=Ceiling(enable=False, ceiling_percent=95))}
    stated = {"other": {"x": 1}} if over is None else {"other": {"x": 1}, "toy": over}
    assert slo_extensions.merged(base, stated) == {"toy": result, "other": {"x": 1}}


def test_koords_own_is_registered_and_always_there() -> None:
    spec = slo.decode_spec({"extensions": {"koord": {}, "other": {"x": 1}}})
    assert EXTENSIONS["koord"] is KoordExtension
    assert spec.koord == slo.decode_spec({}).koord == KoordExtension()
    in_force = slo_defaults.in_force(spec)
    assert in_force.koord == slo_defaults.defaults().koord != KoordExtension()
    assert (in_force.extensions or {})["other"] == {"x": 1}
    assert slo.decode_spec(schema.parse_json(schema.encode(spec))) == spec
    with pytest.raises(SchemaError, match=r"^spec\.extensions\.koord: 3 is not an object"):
        slo.decode_spec({"extensions": {"koord": 3}})
