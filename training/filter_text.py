"""Keeps the clean stories of work/raw, once each, and splits off held-out ones.

    python filter_text.py --data work

Writes work/train.jsonl, work/held.jsonl (one story in 200) and work/filter.json, which counts what was dropped and why.
"""

import argparse
import collections
import json
import multiprocessing
import pathlib
import random
import re
import zlib

WORDS, OUTSIDE, RUN, REPEAT = 5000, 1, 13, 8
SPEAKING = re.compile(r"\b(AI|SmolLM|(this|the|my|your) (short )?(story|tale)|moral|title|chapter|paragraph|words)\b")
OPENER = re.compile(r"(Sure|Certainly|Here|Title|I'm)\b|[^.!?\n]*(:|\n)")


def tidy(text: str) -> str:
    """One style of quotes and spaces; paragraphs stay."""
    for old, new in {"\u201c": '"', "\u201d": '"', "\u2019": "'", "\u2018": "'", "\u2014": " - ", "\u2026": "..."}.items():
        text = text.replace(old, new)
    return "\n\n".join(" ".join(p.split()) for p in re.split(r"\n+", text) if p.strip())


def sentences(text: str) -> list[str]:
    """A text's sentences in lower case, letters alone."""
    parts = (" ".join(re.findall(r"[a-z']+", s)) for s in re.split(r"[.!?]+[\"']?\s+|\n+", text.lower()))
    return [s for s in parts if s]


def judge(line: str):
    """(story, its words, key of its near-duplicates), or the reason why it is dropped."""
    text = tidy(json.loads(line))
    words = re.findall(r"[a-z]+(?:'[a-z]+)?", text.lower())
    if not 50 <= len(words) <= 210:
        return "length"
    if not text.isascii() or re.search(r"[^A-Za-z0-9 \n.,!?;:'\"-]|\d{3}|^\W*\d+\.|\n[-\d]", text):
        return "characters"
    if not text[0].isupper() and text[0] != '"' or text[-1] not in '.!?"':
        return "start or end"
    if text.count('"') % 2 or text.count("\n\n") > 8:
        return "quotes or paragraphs"
    if SPEAKING.search(text) or OPENER.match(text):
        return "title or talk about stories"
    parts = sentences(text)
    if len(set(parts)) < len(parts) or len(parts) < 4 or max(len(s.split()) for s in parts) > 50:
        return "repeated, few or long sentences"
    runs = [" ".join(words[i:i + REPEAT]) for i in range(len(words) - REPEAT + 1)]
    if len(set(runs)) < len(runs):
        return "repeated run of words"
    if len(set(words[:80])) < 0.58 * len(words[:80]):
        return "few distinct words"
    key = min(zlib.crc32(" ".join(words[i:i + RUN]).encode()) for i in range(len(words) - RUN + 1))
    return text, words, key


def main():
    arg = argparse.ArgumentParser()
    arg.add_argument("--data", type=pathlib.Path, required=True)
    arg = arg.parse_args()
    lines = [line for file in sorted((arg.data / "raw").glob("*.jsonl")) for line in file.open()]
    with multiprocessing.Pool() as pool:
        judged = pool.map(judge, lines, chunksize=2000)
    reasons = collections.Counter(r for r in judged if isinstance(r, str))
    kept = [r for r in judged if not isinstance(r, str)]
    counts = collections.Counter(w for _, words, _ in kept for w in words)
    common = {w for w, _ in counts.most_common(WORDS)}
    stories, keys = [], set()
    for text, words, key in kept:
        if sum(w not in common for w in words) > OUTSIDE:
            reasons["rare words"] += 1
        elif key in keys:  # the least hash of all runs of 13 words: equal with the likelihood that the runs are shared
            reasons["near duplicate"] += 1
        else:
            keys.add(key)
            stories.append(text)
    random.Random(0).shuffle(stories)
    held = len(stories) // 200
    for name, part in {"held": stories[:held], "train": stories[held:]}.items():
        (arg.data / f"{name}.jsonl").write_text("".join(json.dumps(s) + "\n" for s in part))
    report = dict(sampled=len(lines), dropped=dict(reasons.most_common()), train=len(stories) - held, held=held)
    (arg.data / "filter.json").write_text(json.dumps(report, indent=1))
    print(json.dumps(report))


if __name__ == "__main__":
    main()
