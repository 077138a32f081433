"""Judges the texts that grammars of schemas have drawn: those of the JSON-Schema-Test-Suite, or of libraries."""

import json
import sys

from judge import Exact, judge

drawn, wrong = 0, []
for line in open(sys.argv[1], encoding="utf-8"):
    case = json.loads(line)
    error = judge(case["schema"], case.get("dialect"))(json.loads(case["text"], parse_float=Exact))
    drawn += 1
    if error:
        wrong.append(f"{json.dumps(case['schema'])}\n    {case['text']}\n    {error}")
print(f"ok: {drawn - len(wrong)} of {drawn} texts are valid")
sys.exit("\n".join(wrong[:40]) if wrong else 0)
