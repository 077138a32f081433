"""Compares random expressions: random_expressions.py RENDERER SEED COUNT, where RENDERER is the example `render`."""

import json
import sys
import warnings

from expressions import VALUES, randoms
from jinja import NOW, is_comparable, render
from published import run

# What gristmill refuses, as its errors say it, though jinja2 does not.
REFUSED = [
    "is complex", "is too large", "sameas compares only", "of a safe text is not supported", "as is not supported",
    "does not end within",
    # jinja2 takes a slice that makes no sense as undefined, of constants alone.
    "cannot be sliced", "is sliced",
    # An addition and a subtraction for jinja2.
    "unexpected `+`", "the sign behind the test", "bytes of text", "levels deep",
]


def main(renderer, seed, count):
    warnings.simplefilter("ignore")
    sources = randoms(seed, count)
    outcomes = run(renderer, [{"template": source, "variables": VALUES} for source in sources])
    equal = refused = skipped = 0
    differ = []
    for source, outcome in zip(sources, outcomes):
        text, error = render(source, VALUES)
        if text == outcome.get("text"):
            equal, refused = equal + (text is not None), refused + (text is None)
        elif not is_comparable(text) or any(reason in outcome.get("error", "") for reason in REFUSED):
            skipped += 1
        else:
            differ.append({"expression": source, "jinja2": text, "error": error, "gristmill": outcome})
    print("| expressions | equal | refused | refused by gristmill alone, or not to be compared | differ |\n| ---: | ---: | ---: | ---: | ---: |")
    print(f"| {len(sources)} | {equal} | {refused} | {skipped} | {len(differ)} |")
    print(*(f"- {json.dumps(case, ensure_ascii=False)}" for case in differ), sep="\n")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
