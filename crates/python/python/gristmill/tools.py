"""Python functions as tools, and types as schemas."""

from __future__ import annotations

import enum
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union

from .errors import OptionError, ResponseFormatError

_SIMPLE: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_UNIONS = (Union, types.UnionType)


def adapter(hint: Any) -> Any:
    """Pydantic's adapter of a type."""
    try:
        import pydantic
    except ImportError:
        raise OptionError(f"{hint!r}: schemas of this type need pydantic; pip install pydantic") from None
    return pydantic.TypeAdapter(hint)


def schema(hint: Any) -> dict[str, Any]:
    """The JSON schema of a type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is inspect.Parameter.empty or hint is Any:
        return {}
    if hint in _SIMPLE:
        return {"type": _SIMPLE[hint]}
    if origin is Annotated:
        texts = [text for text in arguments[1:] if isinstance(text, str)]
        if len(texts) < len(arguments) - 1:
            return adapter(hint).json_schema()
        return {**schema(arguments[0]), "description": " ".join(texts)}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in _UNIONS:
        return {"anyOf": [schema(argument) for argument in arguments]}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if hint in (list, tuple, set) or origin in (list, set, frozenset) or origin in (Sequence,):
        return {"type": "array", **({"items": schema(arguments[0])} if arguments else {})}
    if hint is dict or origin in (dict, Mapping):
        return {"type": "object", **({"additionalProperties": schema(arguments[1])} if arguments else {})}
    return adapter(hint).json_schema()


def tool(function: Callable[..., Any]) -> dict[str, Any]:
    """The tool of a function: its name, docstring and type hints. Parameters without a default are required."""
    hints = typing.get_type_hints(function, include_extras=True)
    about, of_parameters = _docstring(inspect.getdoc(function) or "")
    properties, required = {}, []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise OptionError(f"tools: {function.__name__} takes *{name}; a tool names each of its parameters")
        own = schema(hints.get(name, parameter.annotation))
        if name in of_parameters:
            own = {"description": of_parameters[name], **own}
        properties[name] = own
        if parameter.default is parameter.empty:
            required.append(name)
    parameters = {"type": "object", "properties": properties, "required": required}
    return {
        "type": "function",
        "function": {"name": function.__name__, "description": about, "parameters": parameters},
    }


def tools_of(tools: Sequence[Any]) -> list[dict[str, Any]]:
    """Functions as tools; what is a dictionary already stays."""
    return [one if isinstance(one, Mapping) else tool(one) for one in tools]  # type: ignore[misc]


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description and those of parameters (Google's sections ``Args:``, and ``:param name:``)."""
    about, _, rest = text.partition("\nArgs:\n")
    found = {}
    for name, description in re.findall(r"^ +(\w+)(?: *\([^)]*\))?: *(.+(?:\n {8,}.+)*)", rest, re.MULTILINE):
        found[name] = " ".join(description.split())
    for name, description in re.findall(r"^:param (?:\w+ )?(\w+): *(.+)$", about, re.MULTILINE):
        found[name] = description.strip()
    about = re.split(r"\n(?:Returns|Raises|Yields|Examples?):\n|^:\w+", about, flags=re.MULTILINE)[0]
    return " ".join(about.split()), found


def call(function: Callable[..., Any], arguments: dict[str, Any]) -> str:
    """Calls a tool and returns what the model reads. Arguments become the types of the hints, if pydantic is installed."""
    hints = typing.get_type_hints(function, include_extras=True)
    typed = {}
    for name, value in arguments.items():
        hint = hints.get(name)
        is_simple = hint is None or (hint in _SIMPLE and isinstance(value, hint))
        typed[name] = value if is_simple else _typed(hint, value)
    result = function(**typed)
    if isinstance(result, str):
        return result
    return json.dumps(result, ensure_ascii=False, default=_plain)


def _typed(hint: Any, value: Any) -> Any:
    try:
        pydantic = adapter(hint)
    except OptionError:
        return value
    return pydantic.validate_python(value)


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else str(value)


class Format:
    """A response format: a dictionary of OpenAI's interface, or a type whose value is returned."""

    def __init__(self, asked: Any) -> None:
        self._adapter = None
        self.field: dict[str, Any] | None = None
        if asked is None or isinstance(asked, Mapping):
            self.field = asked  # type: ignore[assignment]
        else:
            self._adapter = adapter(asked)
            name = getattr(asked, "__name__", "reply")
            own = {"name": name, "schema": self._adapter.json_schema(), "strict": True}
            self.field = {"type": "json_schema", "json_schema": own}

    def parse(self, text: str, reply: Any) -> Any:
        """The value; None if the format is no type."""
        if self._adapter is None:
            return None
        try:
            return self._adapter.validate_json(text)
        except ValueError as error:
            reason = getattr(reply, "finish_reason", None)
            hint = "; raise max_tokens" if reason == "length" else ""
            message = f"response_format: the reply is no value of the type (finish_reason {reason}{hint}): {error}"
            raise ResponseFormatError(message, reply) from error
