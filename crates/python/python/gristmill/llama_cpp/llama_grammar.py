"""`llama_cpp.llama_grammar`: grammars as texts in GBNF."""

from __future__ import annotations

import json
from os import PathLike
from typing import Any


class LlamaGrammar:
    """A grammar in GBNF, or the JSON schema of a text."""

    def __init__(self, *, grammar: str = "", schema: Any = None) -> None:
        self.grammar = grammar
        self.schema = schema

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> LlamaGrammar:
        """A grammar in GBNF."""
        return cls(grammar=grammar)

    @classmethod
    def from_file(cls, file: str | PathLike[str], verbose: bool = True) -> LlamaGrammar:
        """The grammar in a file."""
        with open(file, encoding="utf-8") as opened:
            return cls.from_string(opened.read(), verbose)

    @classmethod
    def from_json_schema(cls, json_schema: str, verbose: bool = True) -> LlamaGrammar:
        """JSON of this schema."""
        return cls(schema=json.loads(json_schema))

    def fields(self) -> dict[str, Any]:
        """The fields of a request."""
        return {"guided_json": self.schema} if self.schema is not None else {"grammar": self.grammar}
