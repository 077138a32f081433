"""Runs the examples of docs/python.md and of the package with the built-in model, which has a chat template here."""

import doctest
import pathlib
import sys

import gristmill

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "crates/python/tests"))

from conftest import TEMPLATE  # noqa: E402


def main():
    with gristmill.LLM("builtin", ctx=1024, parallel=4, threads=2, device="cpu", chat_template=TEMPLATE) as llm:
        page = doctest.testfile(str(ROOT / "docs/python.md"), module_relative=False, globs={"llm": llm})
        package = doctest.testmod(gristmill)
    attempted = page.attempted + package.attempted
    if page.failed or package.failed or attempted < 30:
        sys.exit(f"doctests: {page.failed + package.failed} of {attempted} examples failed")
    print(f"doctests: {attempted} examples")


main()
