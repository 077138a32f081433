"""jinja2 as transformers 5 sets it up for chat templates, for comparisons."""

import copy
import functools
import json
import re
from datetime import datetime, timezone

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1795255715


class Generation(jinja2.ext.Extension):
    """`{% generation %}`, whose body is written as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("body"), [], [], body).set_lineno(line)

    def body(self, caller):
        return caller()


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    now = datetime.fromtimestamp(NOW, timezone.utc).replace(tzinfo=None)
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = lambda format: now.strftime(format)
    return env


ENVIRONMENT = environment()


@functools.lru_cache(maxsize=8)
def compiled(template):
    return ENVIRONMENT.from_string(template)


def is_comparable(text):
    """Not where it depends on the place of an object in memory, or is a complex number."""
    letters = re.sub("[^0-9a-z]+", "", (text or "").lower())
    return not re.search("at(20)?0x|builtin|boundmethod|generator|rotareneg", letters) and not re.search(r"\d\.\d+e?[-+]?\d*[-+][\d.e-]+j", text or "")


def render(template, variables):
    """The text, or None and why there is none. A filter can change its operand in place, so that it gets a copy."""
    try:
        return compiled(template).render(**copy.deepcopy(variables)), None
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
