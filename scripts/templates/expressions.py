"""Expressions of Jinja with all filters, tests, operators and methods, on values of every type."""

import random

VALUES = {
    "n": None, "t": True, "i": 7, "z": 0, "j": -3, "f": 2.5, "g": 1e16, "h": -0.125,
    "s": "Hello <b>World</b>, it's \"me\"", "e": "", "w": "  two  words\n", "u": "straße ǆ Größe 小麦 😀\u00a0\u200b", "k": "42",
    "l": [3, "a", None, True, 2.5], "m": [3, 1, 2], "x": ["b", "A", "c", "a"], "o": [],
    "d": {"b": 1, "A": [1, "x"], "c": None}, "q": {}, "r": [{"a": 2, "b": "y"}, {"a": 1, "b": "X"}, {"a": 2}],
    "items": {"items": 1, "get": 2, "z": {"keys": []}},
}
OPERANDS = [*VALUES, "undef", "(1, 'a')", "range(4)", "d.items()", "(m | map('string'))"]

FILTERS = {
    "abs": [""], "attr": ["'items'", "'nope'", "1"], "batch": ["2", "2, '-'", ""], "capitalize": [""], "center": ["", "9", "'x'"],
    "count": [""], "d": ["", "1", "'x', true"], "default": ["none", "'', boolean=true"],
    "dictsort": ["", "true", "false, 'value'", "reverse=true", "by='x'"], "e": [""], "escape": [""], "filesizeformat": ["", "true"],
    "first": [""], "float": ["", "1", "default='x'"], "forceescape": [""], "format": ["", "1", "1, 'b'", "a=1"],
    "groupby": ["'a'", "'b', default='z'", "0", "'b', case_sensitive=true"],
    "indent": ["", "2", "2, true", "'> ', true, true", "width=3, first=true"], "int": ["", "5", "0, 16", "default=none"], "items": [""],
    "join": ["", "', '", "'-', 'a'", "attribute='a'", "1"], "last": [""], "length": [""], "list": [""], "lower": [""],
    "map": ["'upper'", "'string'", "attribute='a'", "attribute='b', default='?'", "'default', 1", "", "'nope'", "attribute=0"],
    "max": ["", "attribute='a'", "true"], "min": ["", "attribute='a'", "case_sensitive=true"], "reject": ["", "'none'", "'eq', 1"],
    "rejectattr": ["'a'", "'a', 'eq', 2", "'b', 'defined'"], "replace": ["'l', 'L'", "'', '-'", "'l', 'L', 1", "1, 2", "'a'"],
    "reverse": [""], "round": ["", "1", "-1", "0, 'floor'", "1, 'ceil'", "0, 'x'", "precision=2"], "safe": [""],
    "select": ["", "'string'", "'odd'", "'in', [1, 3]"], "selectattr": ["'a'", "'b', 'undefined'", "'a', '>', 1"],
    "slice": ["2", "3, '-'", "0"], "sort": ["", "true", "attribute='a'", "case_sensitive=true", "reverse=true, attribute='a,b'"],
    "string": [""], "sum": ["", "'a'", "start=10", "start=[]"], "title": [""],
    "tojson": ["", "indent=2", "true", "separators=(',', ':')", "sort_keys=true", "ensure_ascii=true, indent='-'", "indent=0", "separators=''"],
    "trim": ["", "'Hd '", "none", "1"], "truncate": ["5", "9, true", "8, false, '…', 0", "1", "length=12, leeway=1"],
    "unique": ["", "true", "attribute='a'"], "upper": [""], "urlencode": [""], "wordcount": [""], "xmlattr": ["", "false"],
}
TESTS = {
    "boolean": [""], "callable": [""], "defined": [""], "divisibleby": ["(2)", "(0)", "('a')"], "eq": ["(7)", "(none)", "(undef)"],
    "escaped": [""], "even": [""], "false": [""], "filter": [""], "float": [""], "ge": ["(2)", "('a')"], "gt": ["(2)"],
    "in": ["(m)", "(s)", "(d)", "(7)", "(undef)"], "integer": [""], "iterable": [""], "le": ["(2.5)"], "lower": [""], "lt": ["('b')"],
    "mapping": [""], "ne": ["(7)"], "none": [""], "number": [""], "odd": [""], "sequence": [""], "string": [""], "test": [""],
    "true": [""], "undefined": [""], "upper": [""],
}
METHODS = {
    "capitalize": [""], "casefold": [""], "center": ["30", "5, '*'", ""], "copy": [""], "count": ["'l'", "1", "'l', 3", "''"],
    "endswith": ["'\"'", "('a', '\\n')", "'o', 0, 5", "1"], "expandtabs": ["", "4"], "find": ["'l'", "'l', 4", "'l', -4, -1", "'zz'"],
    "format": ["", "1, b=2"], "format_map": ["d"], "get": ["'b'", "'zz'", "'zz', 5", "[]", ""], "index": ["'l'", "1", "3", "'zz'"],
    "isalnum": [""], "isalpha": [""], "isascii": [""], "isdecimal": [""], "isdigit": [""], "isidentifier": [""], "islower": [""],
    "isnumeric": [""], "isprintable": [""], "isspace": [""], "istitle": [""], "isupper": [""], "items": [""],
    "join": ["x", "l", "s", "undef", "n"], "keys": [""], "ljust": ["40", "5"], "lower": [""], "lstrip": ["", "'H '"],
    "partition": ["' '", "'zz'", "''"], "removeprefix": ["'Hello'"], "removesuffix": ["'\\n'"],
    "replace": ["'l', '1'", "'l', '1', 1", "'', '-', 3", "1, 2"], "rfind": ["'l'"], "rindex": ["'l'"], "rjust": ["40, '.'"],
    "rpartition": ["' '", "'zz'"], "rsplit": ["", "' ', 1", "none, 1"], "rstrip": ["", "'\\n '"],
    "split": ["", "' '", "none, 1", "maxsplit=1", "' ', 0", "''"], "splitlines": ["", "true"], "startswith": ["'He'", "('x', ' ')", "''"],
    "strip": ["", "'He '", "none"], "swapcase": [""], "title": [""], "upper": [""], "values": [""], "zfill": ["5", "-1"],
    "append": ["1"], "pop": [""], "update": ["d"], "sort": [""], "nope": [""], "clear": [""],
}
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
ARITHMETIC = BINARY[:8]
SUBSCRIPTS = ["[0]", "[-1]", "['b']", "[1:]", "[::-1]", "[:-1]", "[i]", "['items']", "[s]", "[l]", "[undef]", "[true]", "[2.0]", "['a':]", ".b", ".items", ".nope", ".0", ".copy is callable", "[1:5:2]"]

LITERALS = [
    "'%s' % 1", "'%s %s' % (1, 'a')", "'%d' % 2.9", "'%5.2f|%-6d|%+d|%06.1f|% d' % (3.14159, 7, 7, -2.55, 4)", "'%x %X %o %#x' % (255, 255, 8, 255)",
    "'%r %a' % ('ä', 'ä')", "'%e %G %g' % (12345.678, 1e-10, 1e6)", "'%(b)s-%(A)s' % d", "'%s' % l", "'%s' % (l,)", "'%' % 1", "'%d' % 's'",
    "'%c%c' % (65, 'b')", "'%*d' % (5, 3)", "'%.2s|' % 'abc'", "'%%' % ()", "'x' % 1", "'x' % l", "'%z' % 1", "'%s %s' % 'a'", "'%.3d' % 5", "'%i%%' % true",
    "'{}'.format('x')", "'{0}{1}{0}'.format(1, 2)", "'{a[b]} {a.b}'.format(a=d)", "'{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd')",
    "'{:05d} {:+} {:,} {:_} {:x} {:#b} {:e} {:.3f} {:%} {:g}'.format(42, 1, 1234567, 1234567, 255, 5, 1234.5, 2.0, 0.25, 1e20)", "'{!r:>8} {!s}'.format('a', none)",
    "'{:{}}|'.format('a', 4)", "'{} {0}'.format(1)", "'{}'.format()", "'{'.format(1)", "'{{}}'.format(1)", "'{:.2}'.format('abc')", "'{:d}'.format('a')",
    "'{:c}'.format(65)", "'{:08.3f}'.format(-3.14159)", "'{:,.2f}'.format(1234567.891)", "'{:012,}'.format(1234)", "'{0.items}'.format(1)", "'{:5}'.format(none)",
    "'{}'.format(undef)", "'{:=+6}'.format(5)", "'{:.3}'.format(100.0)", "'{}'.format(2.0)", "'{x}'.format(y=1)", "'{:n}'.format(5)",
    "strftime_now('%-d %B %Y')", "strftime_now('%Y-%m-%dT%H:%M:%S%z')", "strftime_now('%j %U %w %% %p %I %y %Z %c %x %X %G-W%V-%u')", "strftime_now('%Q')", "strftime_now(1)",
    "range(3)", "range(1, 9, 3)", "range(0)", "range(5)[1:3]", "range(3)[-1]", "range(1.0)", "range()", "range(200000)", "dict(a=1)", "dict(d, z=1)", "dict([('a', 1)])", "dict(1)",
    "namespace(a=1)", "namespace(a=1).a", "namespace(a=1).b", "cycler(1, 2).next()", "cycler(1, 2).current", "joiner('|')()", "cycler()",
    "(1,)", "()", "(1, [2], {'a': (3,)})", "{1: 'a', 'b': [none, true]}", "{(1, 2): 3}", "{[1]: 2}", "[1, 2.0, 1e100, 1e-5, 123456789012345680.0, 0.1 + 0.2]", "['it\\'s', \"q\\\"\", 'a\\nb\\t\\\\']",
    "[undef]", "{'a': undef}|tojson", "1 if undef", "1 if undef else 2", "-3 // 2", "-3 % 2", "3 % -2", "2 ** -1", "2 ** 0.5", "0.0 // 1", "-7.5 // 2", "-7.5 % 2", "7 / 2", "6 / 2",
    "-i", "-f", "-t", "- i | abs", "-j | abs", "-d.b", "not e", "not l and 1", "1 < 2 < 3", "1 < 2 > 5", "1 == 1.0 == true", "'a' < 'b' <= 'b'", "i in m or 3 in m", "not i in m", "2 * 3 + 4 ** 2 ~ 'x'", "1 ~ 2 + 3", "2 ** 3 ** 2", "-2 ** 2",
    "'a' 'b'", "'\\x41\\u00e9\\n'", "1_000", "1e3", "0x1f", "0b11", "0o17", "5 // 0", "5 % 0", "5.0 / 0", "[1, 2] + [3]", "(1,) + (2,)", "[1] + (2,)", "[1] * 2", "2 * 'ab'", "'a' * -1", "'a' * 1.0", "true + 1", "none + 1",
    "[1] == [1.0]", "(1,) == [1]", "{'a': 1} == {'a': true}", "undef == undef", "undef == none", "undef < 1", "[1, 2] < [1, 3]", "[1] < ['a']", "none < 1", "{} < {}", "'1' == 1", "true == 1", "1 in {1: 2}", "[] in {}", "1 in 'a'", "'' in 'a'", "1 in 2", "1 in undef", "1 in none",
    "('<' | e) + '<'", "('<' | safe) ~ '<'", "'<' + ('<' | e)", "['<', '<' | e] | join('<')", "('<' | e) is escaped", "('<'|safe)|upper + '<'", "['<'|safe]", "('<' | e) * 2",
    "r | map(attribute='b') | list", "r | selectattr('a', 'eq', 2) | map(attribute='a') | sum", "r | groupby('a') | map(attribute='list') | list", "r | groupby('a') | map('first') | list", "(r | groupby('a'))[0].grouper",
    "m | map('string') | join('-')", "x | sort | join", "x | unique | list", "m | batch(2) | list", "m | slice(2) | list", "m | reverse | list", "d | dictsort", "d | items | list", "m | map('pow')", "m|map('upper')|first", "(m | select) | length",
    "m | list | tojson(indent=2)", "{'b': {'x': [], 'y': {}}, 'a': [1, {'z': 'ä\\u2028\\x7f'}]} | tojson(indent=2)", "{'b': 1, 'a': 2} | tojson(sort_keys=true)", "{1: 2, none: 3, false: 4, 2.5: 6} | tojson", "{(1, 2): 3} | tojson", "'ä😀\\x7f' | tojson(ensure_ascii=true)",
    "[1, [2, [3]]] | tojson(indent=1, separators=(';', '='))", "range(3) | tojson", "(1, 2) | tojson", "d.items() | tojson", "1e400 | tojson", "1e16 | tojson", "1.0 | tojson",
    "d.items() | list", "d.keys() | list", "d.values() | list | length", "items.items() | list", "items['items']", "items.z.keys", "items.z.keys() | list", "items.items is callable", "items.z['keys']", "d.items()[0]", "d.keys() | first", "d.items() | last",
    "none.x", "none['x']", "undef.x", "undef['x']", "undef[0]", "undef()", "undef.x()", "1 .x", "s.x", "l.x", "l.append(1)", "d.update({})", "d.pop('b')", "l['0']", "d[[]]", "l[{}]", "l[9]", "l[true]", "s[100]", "s[-1]", "s[1:3]", "i[0:1]", "l['a':'b']", "l[::0]",
    "'0x1f' | int(0, 16)", "'1_000' | int", "'4.9' | int", "' 5 ' | int", "'x' | int(7)", "'' | int", "'1e3' | int", "'inf' | int", "'0b11' | int(0, 2)", "'12abc' | int", "1e3 | int", "'1e3' | float", "'.5' | float", "'1_0.5' | float", "'nan' | float", "none | int", "[] | int", "true | int",
    "2.5 | round", "3.5 | round", "2.675 | round(2)", "1234.5678 | round(-2)", "25 | round(-1)", "35 | round(-1)", "1.1 | round(1, 'ceil')", "-1.5 | round", "7 | round(1)", "1e16|round", "42.55 | round(1, 'floor')",
    "13 | filesizeformat", "1000000 | filesizeformat", "1024 | filesizeformat(true)", "1 | filesizeformat", "'1e30' | filesizeformat",
    "'a b/c?é' | urlencode", "{'a b': 'c/d', 'e': 1} | urlencode", "[('a', 1)] | urlencode", "{'a': 'x<y', 'b': none, 'c': 1} | xmlattr", "{'a b': 1} | xmlattr",
    "'foo bar baz qux' | truncate(9)", "'foo bar baz qux' | truncate(9, true)", "'foo bar baz qux' | truncate(11)", "'foo bar baz qux' | truncate(11, false, '...', 0)", "'foo-bar (baz) o\\'neil' | title", "\"o'neil's bar-baz\".title()", "'a\\nb\\n\\nc' | indent", "'a\\r\\nb' | indent(2, true, true)", "'\\n' | indent", "'a\\n' | indent",
    "'a\\tb'.expandtabs(4)", "'ß'.upper()", "'ǆ'.title()", "'ΑΣ'.lower()", "'ﬁ'.capitalize()", "'x'.center(4)", "'x'.center(5)", "'xy'.center(5)", "'-5'.zfill(4)", "'a,b,,c'.split(',')", "'a,b,,c'.rsplit(',', 1)", "' a  b '.split()", "' a  b  c '.split(none, 1)", "' a  b  c '.rsplit(none, 1)", "'a\\rb\\x0bc\\u2028d'.splitlines()",
    "'abc'.find('c', -1)", "'abc'.find('', 3)", "'abc'.find('', 4)", "'aXbX'.rfind('X', 0, 3)", "'abc'.index('z')", "'abab'.count('ab', 1)", "'abc'.startswith(('x', 'a'))", "'abc'.startswith('b', 1)", "'abc'.startswith([])", "','.join(['a', 1])", "','.join('abc')", "','.join(d)", "'a'.join()", "'١٢'.isdigit()", "'²'.isdecimal()", "'²'.isdigit()", "'½'.isnumeric()", "'a1_'.isidentifier()",
    "d.get('zz')", "d.get('zz', 1)", "d.copy()", "l.count(3)", "l.index('a')", "l.index(99)", "(1, 2, 1).count(1)", "(3, 4).index(4)", "l.copy()", "range(5).index(3)", "d.get()", "d.get('b', 1, 2)", "'a'.upper(1)", "'a'.split(x=1)",
    "1 is sameas true", "none is sameas none", "1.0 is sameas 1", "'upper' is filter", "'nope' is filter", "'odd' is test", "i is not odd", "i is odd and t", "i is divisibleby 7", "i is in m", "s is string", "d is sequence", "undef is sequence", "undef is iterable", "'a' is upper", "7.5 is odd", "s is odd", "t is number", "t is integer",
    "loop", "loop is defined", "undef | length", "undef | list", "undef | items | list", "undef | first", "undef | last", "undef | reverse | list", "undef | sum", "undef | upper", "undef | trim", "undef | int", "undef | float", "undef | round", "undef | abs", "undef | tojson", "undef | string", "undef | join", "undef | sort", "undef | map('upper') | list", "undef | dictsort", "undef | max", "undef | replace('a', 'b')", "undef | default(1)", "undef ~ 'a'", "undef + 'a'", "undef * 2", "undef | indent", "undef | truncate", "undef | e", "undef | wordcount", "undef | unique | list", "undef | groupby('a')", "undef | batch(2) | list", "undef | center(4)", "undef | title", "undef | capitalize", "undef | urlencode", "undef | format", "undef | attr('a')", "undef | selectattr('a') | list", "undef | xmlattr", "undef | filesizeformat", "undef[1:]", "undef is none", "undef or 1", "not undef",
]

STATEMENTS = [
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in undef|items %}{{ k }}{% endfor %}|", "{% for x in none %}{{ x }}{% endfor %}", "{% for x in 5 %}{% endfor %}", "{% for x in undef %}{{ x }}{% else %}none{% endfor %}",
    "{% for c in 'añb' %}{{ loop.index }}{{ c }}{{ loop.last }}{% endfor %}", "{% for x in d %}{{ x }}{% endfor %}", "{% for x in m|map('string') %}{{ loop.length }}{{ loop.revindex }}{{ x }}{% endfor %}", "{% for x in m if x > 1 %}{{ loop.index0 }}{{ x }}{% endfor %}",
    "{% for x in m %}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{{ loop.changed(x // 2) }}{% endfor %}", "{% for x in m %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% endfor %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set a = (1, 2) %}{{ a }}", "{% set ns = namespace(x=1) %}{% for i in m %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% set ns = namespace() %}{{ ns.x }}{{ ns.x is defined }}",
    "{% set x = 1 %}{% for i in m %}{% set x = i %}{% endfor %}{{ x }}", "{% set x %}a{{ i }}b{% endset %}{{ x | length }}{{ x }}", "{% set x | upper %}ab{% endset %}{{ x }}", "{% filter upper %}a{{ s }}{% endfilter %}",
    "{% macro m1(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m1(1) }}{{ m1(1, b=3) }}{{ m1() }}", "{% macro m1() %}[{{ caller() }}]{% endmacro %}{% call m1() %}x{% endcall %}", "{% macro m1(a) %}{% endmacro %}{{ m1(1, 2) }}",
    "{% macro m1(a) %}{{ a }}{% endmacro %}{{ m1 }}{{ m1.name }}{{ m1 is callable }}", "{% macro m1(n) %}{{ n }}{% if n %}{{ m1(n - 1) }}{% endif %}{% endmacro %}{{ m1(3) }}", "{% macro m1(x) %}{% call(y) m2() %}{{ y }}{{ x }}{% endcall %}{% endmacro %}{% macro m2() %}{{ caller(5) }}{% endmacro %}{{ m1(1) }}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "{% if undef %}a{% elif l %}b{% else %}c{% endif %}", "{% if undef.x %}a{% endif %}", "a\n  {% if t %}\n  b\n  {% endif %}\nc", "a {%- if t -%} b {%- endif -%} c", "{{- 1 }}  {{ 2 -}}  x", "{% raw %}{{ x }}{% endraw %}", "{# c #}\nx{#- c -#} y", "  {%+ if t %}x{% endif +%}\n y",
    "{% generation %}a{{ i }}{% endgeneration %}b", "{% for x in [[1, [2]], [3]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{% endif %}{% endfor %}", "{{ raise_exception('no') }}", "{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for a in [1, 2] %}{% for b in [1, 2] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}", "{% set j = joiner() %}{{ j() }}a{{ j() }}b", "{% set g = m|map('string') %}{{ g|list }}{{ g|list }}", "{% set a = [1] %}{% set b = a + [2] %}{{ a }}{{ b }}", "{% for (k, v) in d|dictsort %}{{ k }}{% endfor %}", "{{ loop.index }}", "{% for x in m %}{% set loop = 1 %}{{ loop }}{% endfor %}", "{{ (m|select|list)[0] }}{{ m|select|first }}",
    "{% set x = {'a': 1} %}{% set _ = x.update({'b': 2}) %}{{ x }}", "{%- for x in m -%}\n{{ x }}\n{%- endfor %}\n", "{% if 'a' in d and d.A is string %}x{% endif %}{% if d.A is not string %}y{% endif %}", "\n{{ 1 }}\n", "{{ '\n' }}x\n\n", "{% set x = 'a' if undef %}[{{ x }}]", "{{ x.y.z }}", "{{ d.b.c }}", "{{ d.zz.c }}", "{{ d['zz']['c'] }}",
]


def forms(operands):
    """Every filter, test, operator and method with each of its arguments; @ stands for the operand."""
    out = []
    for name, all_arguments in FILTERS.items():
        out += [f"@ | {name}({arguments}){listed(name)}" if arguments else f"@ | {name}{listed(name)}" for arguments in all_arguments]
    out += [f"@ is {name}{arguments}" for name, all_arguments in TESTS.items() for arguments in all_arguments]
    out += [f"@.{name}({arguments})" for name, all_arguments in METHODS.items() for arguments in all_arguments]
    out += [f"@ {operator} {operand}" for operator in BINARY for operand in operands]
    return out + ["@" + subscript for subscript in SUBSCRIPTS]


LAZY = {"batch", "items", "map", "reject", "rejectattr", "reverse", "select", "selectattr", "slice", "unique"}


def listed(name):
    """What makes a list of what a filter writes as a place in memory."""
    return " | list" if name in LAZY else ""


def expression(choose, depth):
    """A random expression."""
    part = lambda: expression(choose, depth - 1)
    if depth == 0:
        return choose(OPERANDS + ["1", "'a'", "2", "' '", "[1, 2]", "none", "true"])
    kind = choose(["filter", "filter", "test", "method", "binary", "binary", "subscript", "if", "list", "not", "paren"])
    if kind in ("filter", "test", "method"):
        table = {"filter": FILTERS, "test": TESTS, "method": METHODS}[kind]
        name = choose(list(table))
        arguments = choose(table[name])
        if kind == "test":
            return f"({part()}) is {name}{arguments}"
        if kind == "method":
            return f"({part()}).{name}({arguments})"
        call = f"{name}({arguments})" if arguments else name
        return f"({part()} | {call}{listed(name)})"
    if kind == "binary":
        operator = choose(BINARY)
        # A chain of comparisons ends in Python where one fails, and here it is evaluated as a whole.
        return f"{part()} {operator} {part()}" if operator in ARITHMETIC else f"({part()}) {operator} ({part()})"
    if kind == "subscript":
        return f"({part()}){choose(SUBSCRIPTS)}"
    if kind == "if":
        return f"({part()} if {part()} else {part()})"
    if kind == "list":
        return choose(["[{}, {}]", "({}, {})", "{{'a': {}, 'b': {}}}"]).format(part(), part())
    return f"not {part()}" if kind == "not" else f"({part()})"


def randoms(seed, count):
    source = random.Random(seed)
    return ["{{ " + expression(source.choice, source.randint(1, 4)) + " }}" for _ in range(count)]
