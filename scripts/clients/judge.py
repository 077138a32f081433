"""Judges values by the packages jsonschema and openapi-schema-validator, with the patterns and numbers of JSON Schema."""

from fractions import Fraction

import jsonschema
import openapi_schema_validator
import regress


class Exact(float):
    """A number with its text: of long ones, a float has only the first digits."""

    def __new__(cls, text):
        number = super().__new__(cls, text)
        number.text = text
        return number


def found(pattern, text):
    # Python's own patterns are others than ECMA-262's.
    return regress.Regex(pattern, "u").find(text)


def pattern(validator, wanted, instance, schema):
    if isinstance(instance, str) and not found(wanted, instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {wanted!r}")


def pattern_properties(validator, wanted, instance, schema):
    for pattern, part in wanted.items():
        for name, value in instance.items() if isinstance(instance, dict) else ():
            if found(pattern, name):
                yield from validator.descend(value, part, path=name, schema_path=pattern)


def additional_properties(validator, wanted, instance, schema):
    if not isinstance(instance, dict):
        return
    for name, value in instance.items():
        if name not in schema.get("properties", {}) and not any(found(p, name) for p in schema.get("patternProperties", {})):
            yield from validator.descend(value, wanted, path=name)


def multiple_of(validator, wanted, instance, schema):
    # The package divides floating-point numbers.
    number = isinstance(instance, (int, float)) and not isinstance(instance, bool)
    if number and Fraction(getattr(instance, "text", str(instance))) % Fraction(str(wanted)):
        yield jsonschema.ValidationError(f"{instance} is not a multiple of {wanted}")


OWN = dict(
    pattern=pattern,
    patternProperties=pattern_properties,
    additionalProperties=additional_properties,
    multipleOf=multiple_of,
)

# The formats that grammars enforce; others are annotations.
FORMATS = {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"}


def formats(validator):
    checker = jsonschema.FormatChecker(())
    checker.checkers = {name: check for name, check in validator.FORMAT_CHECKER.checkers.items() if name in FORMATS}
    return checker


def judge(schema, dialect=None):
    """A function that returns the first error of a value, or None."""
    if dialect == "openapi-3.0":
        kind = openapi_schema_validator.OAS30Validator
    else:
        kind = jsonschema.validators.validator_for(schema)
    own = {name: check for name, check in OWN.items() if name in kind.VALIDATORS}
    validator = jsonschema.validators.extend(kind, own)(schema, format_checker=formats(kind))
    return lambda value: next((error.message for error in validator.iter_errors(value)), None)
