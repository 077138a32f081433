"""Golden file for the filters, tests, operators and methods of chat templates: crates/text/tests/golden/expressions.json.

For each form, in which @ stands for the operand, the outcome for each operand: the place of a text in a list, 0 for an
error, -1 for what is not compared. The forms are those of scripts/templates/expressions.py.

Run with Python 3.11 and jinja2 3.1.6, without arguments.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts/templates"))

from expressions import LITERALS, OPERANDS, STATEMENTS, VALUES, forms  # noqa: E402
from jinja import is_comparable, render  # noqa: E402

OUT = ROOT / "crates/text/tests/golden/expressions.json"
# Of operands of the same type some are left to the random comparison.
LEFT_OUT = {"z", "g", "h", "k", "x", "q"}


def main():
    texts = {None: 0}

    def outcome(source):
        text, _ = render(source, VALUES)
        if source == "{{ (1, 'a')['a':] }}":
            # Where all is constant, jinja2 makes such a slice undefined before it renders.
            return -1
        return texts.setdefault(text, len(texts)) if is_comparable(text) else -1

    lone = {source: outcome(source) for source in ["{{ " + text + " }}" for text in LITERALS] + STATEMENTS}
    operands = [operand for operand in OPERANDS if operand not in LEFT_OUT]
    filled = {form: [outcome("{{ " + form.replace("@", operand, 1) + " }}") for operand in operands] for form in forms(operands)}
    dump = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    rows = ",\n".join(f"{dump(form)}:{dump(outcomes)}" for form, outcomes in filled.items())
    parts = {"variables": VALUES, "operands": operands, "texts": [text or "" for text in texts], "lone": lone}
    text = "{" + ",\n".join(f"{dump(name)}:{dump(value)}" for name, value in parts.items()) + ",\n\"forms\":{\n" + rows + "\n}}\n"
    OUT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
