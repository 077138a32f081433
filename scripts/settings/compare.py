#!/usr/bin/env python3
"""Compares what gristmill and transformers make of changed settings, and prints the lines of the page.

    python scripts/settings/compare.py THEIRS OURS

Exits with 1 if a difference has no reason in reasons.py, or a reason explains nothing.
"""

import collections
import json
import statistics
import sys

from reasons import REASONS

# Of the losses of tokens, which are about 6. Keys and values are stored with 16 bits, which costs up to 0.012 in these
# models; another setting that is read costs more than 0.017.
TOLERANCE = 1.2e-2
DOZEN = 12

SAME, BOTH, REFUSES, DIFFERS, ALONE = "same losses", "both refuse", "gristmill refuses", "differ", "transformers refuses"


def gap(theirs: list, ours: list) -> float:
    """The largest median of a dozen tokens' differences: one token whose router is close to a tie does not count."""
    found = []
    for one, other in zip(theirs, ours):
        differences = [abs(a - b) for a, b in zip(one, other)]
        found += [statistics.median(differences[start : start + DOZEN]) for start in range(0, len(differences) - DOZEN // 2, DOZEN)]
    return max(found)


def outcome(theirs: dict, ours: dict) -> tuple:
    """The class of a change, and what shows it."""
    if "refused" in theirs:
        return (BOTH, "") if "refused" in ours else (ALONE, theirs["refused"])
    if "refused" in ours:
        return REFUSES, ours["refused"].rsplit(": ", 1)[-1] if "config.json" not in ours["refused"] else ours["refused"].split("config.json")[-1]
    found = gap(theirs["losses"], ours["losses"])
    return (SAME, found) if found <= TOLERANCE else (DIFFERS, f"the loss of a token by {found:.3g}")


def main(theirs: str, ours: str) -> int:
    counts, used, left, most = collections.defaultdict(collections.Counter), collections.Counter(), [], 0.0
    with open(theirs, encoding="utf-8") as one, open(ours, encoding="utf-8") as other:
        for theirs, ours in zip(map(json.loads, one), map(json.loads, other), strict=True):
            kind, shows = outcome(theirs, ours)
            folder, key, change = theirs["folder"], theirs["key"], theirs["change"]
            counts[folder][kind] += 1
            if kind == SAME:
                most = max(most, shows)
            # What transformers refuses by the types of its fields, or because it fails, needs no reason here.
            if kind in (REFUSES, DIFFERS):
                reason = next((i for i, reason in enumerate(REASONS) if reason.explains(kind, folder, key, change)), None)
                if reason is None:
                    left.append((kind, folder, key, change, shows))
                else:
                    used[reason] += 1
    kinds = (SAME, BOTH, REFUSES, ALONE, DIFFERS)
    print(f"| folder | changes | {' | '.join(kinds)} |\n| --- |{' ---: |' * (len(kinds) + 1)}")
    for folder, found in counts.items():
        print(f"| {folder} | {sum(found.values())} | {' | '.join(str(found[kind]) for kind in kinds)} |")
    every = sum(counts.values(), collections.Counter())
    print(f"| all | {sum(every.values())} | {' | '.join(str(every[kind]) for kind in kinds)} |")
    print(f"\nSame: the median difference of each dozen of 90 tokens' losses is at most {TOLERANCE:g}; the most found is {most:.1g}.")
    print("\nReasons of the differences, with how many changes each explains:\n")
    for i, reason in enumerate(REASONS):
        print(f"- {reason.kind}, {used[i]}: {reason.why}")
        if not used[i]:
            left.append(("a reason explains nothing", reason.folder, reason.key, reason.change, reason.why))
    if left:
        print("\nWithout a reason:\n")
        for kind, *what, shows in left:
            print(f"- {kind}: {' '.join(map(str, what))}: {shows}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
