"""Schemas as pydantic and OpenAPI documents have them, and those of zod, with texts that are valid and invalid for them.

`schemas.py schemas.mjs FOLDER`, where schemas.mjs is next to its packages: the validators of the packages jsonschema and openapi-schema-validator judge the
texts. An invalid text is a valid one with one change: a part of another type, one less, or one more.
"""

import copy
import datetime
import decimal
import enum
import ipaddress
import json
import pathlib
import subprocess
import sys
import typing
import uuid
from dataclasses import dataclass

import annotated_types
import pydantic
from judge import judge
from pydantic import BaseModel, Field, TypeAdapter
from typing_extensions import TypedDict


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    S = 1
    L = 2


class Car(BaseModel):
    vehicle: typing.Literal["Car"]
    brand: str


class Bike(BaseModel):
    vehicle: typing.Literal["Bike", "Trike"]
    gears: int


class Person(BaseModel):
    """A person with a vehicle."""

    name: str = Field(min_length=1, max_length=20, examples=["Ann"])
    age: int = Field(ge=0, lt=150)
    vehicle: typing.Annotated[Car | Bike, Field(discriminator="vehicle")]
    tags: list[str] = []


class Tree(BaseModel):
    value: int
    children: list["Tree"] = []


class Sum(BaseModel):
    op: typing.Literal["sum"]
    of: list["Expression"]


class Leaf(BaseModel):
    op: typing.Literal["leaf"]
    value: float


Expression = typing.Annotated[Sum | Leaf, Field(discriminator="op")]
Sum.model_rebuild()


class Base(BaseModel):
    id: int


class Derived(Base):
    name: str | None = None


class Strict(BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", json_schema_extra={"example": {"a": 1}, "x-order": 1})
    a: int


class Typed(TypedDict):
    a: int
    b: typing.NotRequired[str]


class Point(typing.NamedTuple):
    x: float
    y: float


@dataclass
class Data:
    a: int
    b: str = "b"


T = typing.TypeVar("T")


class Page(BaseModel, typing.Generic[T]):
    items: list[T]
    total: int


class Aliased(BaseModel):
    from_: str = Field(alias="from", description="the sender", deprecated=True)


PYDANTIC = [
    ("str", str, ["", "mill"]),
    ("str with lengths", typing.Annotated[str, Field(min_length=2, max_length=3)], ["ab"]),
    ("str with a pattern", typing.Annotated[str, Field(pattern=r"^[A-Z]{2}\d+$")], ["AB1"]),
    ("int", int, [0, -3]),
    ("int with bounds", typing.Annotated[int, Field(gt=0, le=10, multiple_of=2)], [2, 10]),
    ("float", float, [0.5, -2.0]),
    ("float with bounds", typing.Annotated[float, annotated_types.Interval(gt=0, lt=1)], [0.5]),
    ("bool", bool, [True]),
    ("None", None, [None]),
    ("Decimal", decimal.Decimal, [decimal.Decimal("1.5")]),
    ("date", datetime.date, [datetime.date(2024, 2, 29)]),
    ("time", datetime.time, [datetime.time(10, 0, tzinfo=datetime.timezone.utc)]),
    ("datetime", datetime.datetime, [datetime.datetime(2024, 2, 29, 10, 0, tzinfo=datetime.timezone.utc)]),
    ("timedelta", datetime.timedelta, [datetime.timedelta(days=1, hours=2)]),
    ("UUID", uuid.UUID, [uuid.UUID(int=1)]),
    ("Path", pathlib.Path, [pathlib.Path("a/b")]),
    ("IPv4Address", ipaddress.IPv4Address, [ipaddress.IPv4Address("127.0.0.1")]),
    ("IPv6Address", ipaddress.IPv6Address, [ipaddress.IPv6Address("::1")]),
    ("HttpUrl", pydantic.HttpUrl, [pydantic.HttpUrl("https://a.example/b")]),
    ("EmailStr", pydantic.EmailStr, ["a@example.org"]),
    ("SecretStr", pydantic.SecretStr, []),
    ("Base64Bytes", pydantic.Base64Bytes, [b"YWJj"]),
    ("bytes", bytes, [b"ab"]),
    ("Json", pydantic.Json[list[int]], []),
    ("ByteSize", pydantic.ByteSize, [pydantic.ByteSize(5)]),
    ("Any", typing.Any, [1, "a", [None]]),
    ("Enum", Color, [Color.RED]),
    ("IntEnum", Size, [Size.S]),
    ("Literal", typing.Literal["a", 1, None], ["a", 1, None]),
    ("Optional", typing.Optional[int], [None, 1]),
    ("Union", int | str | Car, [1, "a", Car(vehicle="Car", brand="x")]),
    ("list", typing.Annotated[list[int], Field(min_length=1, max_length=3)], [[1], [1, 2, 3]]),
    ("set of an enum", set[Color], [[Color.RED, Color.BLUE]]),
    ("set of bool", typing.Annotated[set[bool], Field(min_length=1)], [[True]]),
    ("frozenset of literals", frozenset[typing.Literal["a", "b", "c"]], [["b", "a"]]),
    ("tuple", tuple[int, str], [(1, "a")]),
    ("tuple of any length", tuple[int, ...], [(1, 2)]),
    ("dict", dict[str, int], [{}, {"a": 1}]),
    ("dict of an enum", dict[Color, int], [{Color.RED: 1}]),
    ("dict of a pattern", dict[typing.Annotated[str, Field(pattern="^[a-z]+$")], int], [{"ab": 1}]),
    ("dict of lists", dict[str, list[Strict]], [{"x": [Strict(a=1)]}]),
    ("NamedTuple", Point, [Point(1.5, 2.0)]),
    ("TypedDict", Typed, [{"a": 1}, {"a": 1, "b": "x"}]),
    ("dataclass", Data, [Data(1)]),
    ("model", Strict, [Strict(a=1)]),
    ("model with a union", Person, [Person(name="Ann", age=3, vehicle=Car(vehicle="Car", brand="x"), tags=["a"])]),
    ("model that inherits", Derived, [Derived(id=1), Derived(id=1, name="x")]),
    ("model with an alias", Aliased, [Aliased(**{"from": "x"})]),
    ("generic model", Page[Car], [Page(items=[Car(vehicle="Car", brand="x")], total=1)]),
    ("recursive model", Tree, [Tree(value=1, children=[Tree(value=2)])]),
    ("discriminated union", typing.Annotated[Car | Bike, Field(discriminator="vehicle")], [Bike(vehicle="Trike", gears=3)]),
    ("recursive union", Expression, [Sum(op="sum", of=[Leaf(op="leaf", value=1.5), Sum(op="sum", of=[])])]),
    ("list of unions", list[typing.Annotated[Car | Bike, Field(discriminator="vehicle")]], [[Car(vehicle="Car", brand="x")]]),
    ("model in Optional", typing.Optional[Person], [None]),
]


# Definitions as documents of OpenAPI have them. In 3.0 null is `nullable`, bounds are booleans, and there is no const.
def openapi(version):
    old = version == "3.0"
    null = lambda schema: {**schema, "nullable": True} if old else {**schema, "type": [schema["type"], "null"]}
    kind = lambda name: {"type": "string"} if old else {"const": name}
    above = {"minimum": 0, "exclusiveMinimum": True} if old else {"exclusiveMinimum": 0}
    schemas = {
        "Pet": {
            "type": "object",
            "required": ["petType", "name"],
            "properties": {
                "petType": {"type": "string"},
                "name": {"type": "string", "example": "Rex", "xml": {"attribute": True}},
                "owner": null({"type": "string", "format": "email"}),
            },
            "externalDocs": {"url": "https://a.example"},
            "example": {"petType": "Dog", "name": "Rex"},
        },
        "Weight": {"type": "number", "format": "double", **above, "example": 2.5},
        "Dog": {
            "type": "object",
            "required": ["petType", "bark"],
            "properties": {"petType": kind("dog"), "bark": {"type": "boolean"}, "weight": {"$ref": "#/components/schemas/Weight"}},
        },
        "Lizard": {
            "type": "object",
            "required": ["petType"],
            "properties": {"petType": kind("Lizard"), "lovesRocks": {"type": "boolean", "deprecated": True}},
        },
        "AnyPet": {
            "oneOf": [{"$ref": "#/components/schemas/Dog"}, {"$ref": "#/components/schemas/Lizard"}],
            "discriminator": {"propertyName": "petType", "mapping": {"dog": "#/components/schemas/Dog"}},
        },
        "Puppy": {
            "allOf": [
                {"$ref": "#/components/schemas/Pet"},
                {"type": "object", "required": ["age"], "properties": {"age": {"type": "integer", "format": "int32", "minimum": 0}}},
            ]
        },
        "Wrapped": {"type": "object", "required": ["pet"], "properties": {"pet": {"allOf": [{"$ref": "#/components/schemas/Pet"}], "description": "d"}}},
        "Status": null({"type": "string", "enum": ["open", "shut", None]}),
        "File": {"type": "string", "format": "byte"} if old else {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"},
        "Map": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/Weight"}},
        "List": {"type": "array", "items": {"$ref": "#/components/schemas/AnyPet"}, "minItems": 1, "maxItems": 3},
        "Both": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "integer"}], "readOnly": True},
    }
    values = {
        "Pet": [{"petType": "Dog", "name": "Rex"}, {"petType": "Dog", "name": "Rex", "owner": None}],
        "Weight": [2.5],
        "Dog": [{"petType": "dog", "bark": True, "weight": 1.5}],
        "AnyPet": [{"petType": "dog", "bark": True}, {"petType": "Lizard"}],
        "Puppy": [{"petType": "Dog", "name": "Rex", "age": 1}],
        "Wrapped": [{"pet": {"petType": "Dog", "name": "Rex"}}],
        "Status": ["open", None],
        "File": ["YWJj"],
        "Map": [{"a": 1.5}],
        "List": [[{"petType": "dog", "bark": False}]],
        "Both": ["abc", 7],
    }
    for name, valid in values.items():
        schema = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}}
        yield {"name": f"OpenAPI {version}, {name}", "dialect": f"openapi-{version}", "schema": schema, "valid": valid}


def pydantic_cases():
    for name, of, values in PYDANTIC:
        adapter = TypeAdapter(of)
        valid = [json.loads(adapter.dump_json(value, by_alias=True, exclude_unset=True)) for value in values]
        for mode in ("validation", "serialization"):
            schema = adapter.json_schema(mode=mode)
            yield {"name": f"pydantic, {name} ({mode})", "dialect": "draft-2020-12", "schema": schema, "valid": valid}


def changed(value):
    """Values that differ from a value in one place."""
    others = [None, True, 7, -0.5, "other text", [], {}]
    yield from (other for other in others if type(other) is not type(value) or other != value)
    if isinstance(value, dict):
        for name in value:
            yield {other: value[other] for other in value if other != name}
            for part in changed(value[name]):
                yield {**value, name: part}
        yield {**value, "unlisted": 1}
    if isinstance(value, list):
        yield value + value if value else [None]
        for index, item in enumerate(value):
            yield value[:index] + value[index + 1 :]
            for part in changed(item):
                yield value[:index] + [part] + value[index + 1 :]


written = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
zod = subprocess.run(["node", sys.argv[1]], stdout=subprocess.PIPE, check=True, encoding="utf-8").stdout
cases = [json.loads(line) for line in zod.splitlines()]
cases += [*pydantic_cases(), *openapi("3.0"), *openapi("3.1")]
counts, wrong = {}, []
folder = pathlib.Path(sys.argv[2])
folder.mkdir(parents=True, exist_ok=True)
with open(folder / "cases.jsonl", "w", encoding="utf-8") as output:
    for case in cases:
        error = judge(case["schema"], case["dialect"])
        for value in case["valid"]:
            if error(value):
                wrong.append(f"{case['name']}: {written(value)}: {error(value)}")
        invalid = {written(other) for value in case["valid"] for other in changed(copy.deepcopy(value)) if error(other)}
        texts = {"valid": [written(value) for value in case["valid"]], "invalid": sorted(invalid)[:60]}
        print(json.dumps({**case, **texts}), file=output)
        library = case["name"].split(",")[0]
        counts[library] = counts.get(library, 0) + 1
print("ok: schemas of " + ", ".join(f"{library} ({count})" for library, count in counts.items()))
sys.exit("\n".join(wrong) if wrong else 0)
