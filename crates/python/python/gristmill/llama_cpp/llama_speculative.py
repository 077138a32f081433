"""`llama_cpp.llama_speculative`: draft tokens from an earlier occurrence of the last ones."""


class LlamaPromptLookupDecoding:
    """The same as ``LLM(draft="lookup", draft_tokens=N)``."""

    def __init__(self, max_ngram_size: int = 2, num_pred_tokens: int = 10) -> None:
        self.num_pred_tokens = num_pred_tokens
