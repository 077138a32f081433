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

import prompts

WORDS, OUTSIDE, RUN, REPEAT, DISTINCT, LIKELY = 4000, 1, 13, 7, 0.58, 2 / 3
SPEAKING = re.compile(r"\b(AI|SmolLM|(this|the|my|your) (short )?(story|tale)|moral|title|chapter|paragraph|words)\b")
OPENER = re.compile(r"(Sure|Certainly|Here|Title|I'm)\b|[^.!?\n]*(:|\n)")
QUOTED = re.compile(r'"[^"]*"')
TELLER = re.compile(r"\b(I|me|my|mine|we|us|our)\b", re.I)
PRESENT = re.compile(r"\b(is|are|am|isn't|aren't|has|does|says|smiles|looks|[Ii]t's|(s?he|they)'(s|re))\b")
TWICE = re.compile(r"\b([A-Z][a-z]+)\b.*\b(named|called) \1\b", re.S)
NAME = re.compile(r"(?<=[a-z,] )(?!I\b)[A-Z][a-z]+")  # a capital within a sentence
GIRL = set("""girl girls mom mommy mother grandma grandmother granny sister sisters aunt woman lady queen princess daughter wife
cow hen mrs miss""".split()) | {n.lower() for n in prompts.GIRLS}
BOY = set("""boy boys dad daddy father grandpa grandfather brother brothers uncle man king prince son husband farmer mr
mister""".split()) | {n.lower() for n in prompts.BOYS}
SHE, HE, THEY = ({"she", "her", "hers", "herself"}, {"he", "him", "his", "himself"},
                 {"they", "them", "their", "theirs", "themselves"})


def tidy(text: str) -> str:
    """One style of quotes and spaces; paragraphs stay."""
    for old, new in {"\u201c": '"', "\u201d": '"', "\u2019": "'", "\u2018": "'", "\u2014": " - ", "\u2026": "..."}.items():
        text = text.replace(old, new)
    return "\n\n".join(" ".join(p.split()) for p in re.split(r"\n+", text) if p.strip())


def sentences(text: str) -> list[str]:
    """A text's sentences in lower case, letters alone."""
    parts = (" ".join(re.findall(r"[a-z']+", s)) for s in re.split(r"[.!?]+[\"']?\s+|\n+", text.lower()))
    return [s for s in parts if s]


def word_list(text: str) -> list[str]:
    return re.findall(r"[a-z]+(?:'[a-z]+)?", text.lower())


def mixed_up(text: str) -> str | None:
    """Why a story does not hold together, as far as names and pronouns show it."""
    told = QUOTED.sub(" ", text)
    if TELLER.search(told):
        return "teller takes part"
    if PRESENT.search(told):
        return "not in the past"
    seen, told = set(word_list(text)), set(word_list(told))
    she, he, girl, boy = (bool(a & b) for a, b in ((told, SHE), (told, HE), (seen, GIRL), (seen, BOY)))
    if she and not girl and (boy or he) or he and not boy and (girl or she):
        return "he or she"
    names = {n for n in re.findall(r"[A-Z][a-z]+", text) if n in prompts.NAMES} | set(NAME.findall(text))
    if len(names) > 3:
        return "many names"
    if TWICE.search(text):
        return "two of one name"
    first, end = min(names, key=text.find, default=None), text[len(text) * 2 // 3:]
    if first and first not in end and not (SHE | HE | THEY) & set(word_list(end)):
        return "name vanishes"
    return None


def judge(text: str):
    """(story, key of its near-duplicates), or the reason why it is dropped."""
    text = tidy(text)
    words = word_list(text)
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
    if len(set(parts)) < len(parts) or len(parts) < 4 or max(len(s.split()) for s in parts) > 40:
        return "repeated, few or long sentences"
    runs = [" ".join(words[i:i + REPEAT]) for i in range(len(words) - REPEAT + 1)]
    if len(set(runs)) < len(runs):
        return "repeated run of words"
    if len(set(words[:80])) < DISTINCT * len(words[:80]):
        return "few distinct words"
    if reason := mixed_up(text):
        return reason
    return text, min(zlib.crc32(" ".join(words[i:i + RUN]).encode()) for i in range(len(words) - RUN + 1))


def judge_file(path):
    """A part's (loss, story, key) that pass, the counts of their words, and of why the others were dropped."""
    kept, words, reasons = [], collections.Counter(), collections.Counter()
    for line in path.open():
        text, loss = json.loads(line)
        verdict = judge(text)
        if isinstance(verdict, str):
            reasons[verdict] += 1
        else:
            kept.append((loss, *verdict))
            words.update(word_list(verdict[0]))
    return kept, words, reasons


def main():
    arg = argparse.ArgumentParser()
    arg.add_argument("--data", type=pathlib.Path, required=True)
    arg = arg.parse_args()
    kept, counts, reasons = [], collections.Counter(), collections.Counter()
    with multiprocessing.Pool() as pool:
        for part, words, dropped in pool.imap(judge_file, sorted((arg.data / "raw").glob("*.jsonl"))):
            kept += part
            counts.update(words)
            reasons.update(dropped)
    sampled = len(kept) + reasons.total()
    common = {w for w, _ in counts.most_common(WORDS)}
    stories, keys = [], set()
    for loss, text, key in kept:
        if sum(w not in common for w in word_list(text)) > OUTSIDE:
            reasons["rare words"] += 1
        elif key in keys:  # the least hash of all runs of 13 words: equal with the likelihood that the runs are shared
            reasons["near duplicate"] += 1
        else:
            keys.add(key)
            stories.append((loss, text))
    stories.sort()
    likely = int(len(stories) * LIKELY)
    reasons["unlikely to SmolLM2 itself"] = len(stories) - likely
    stories = [text for _, text in stories[:likely]]
    random.Random(0).shuffle(stories)
    held = len(stories) // 200
    for name, part in {"held": stories[:held], "train": stories[held:]}.items():
        (arg.data / f"{name}.jsonl").write_text("".join(json.dumps(s) + "\n" for s in part))
    report = dict(sampled=sampled, dropped=dict(reasons.most_common()), train=len(stories) - held, held=held)
    (arg.data / "filter.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
