"""Golden files for the tokenizers: crates/text/tests/golden/tokenizer/*.json.

Trains a small vocabulary of each family on tokenizer.txt and writes, for a corpus of awkward texts, the ids and the
decoded texts that transformers gives.

Run with Python 3.11, tokenizers 0.23.3, transformers 5.23.0 and sentencepiece 0.2.3, without arguments.
"""

import io
import json
import random
from pathlib import Path

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import GPT2Tokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer

HERE = Path(__file__).parent
OUT = HERE.parent.parent / "crates/text/tests/golden/tokenizer"
TEXT = HERE / "tokenizer.txt"

CONTROL = ["<|begin|>", "<|end|>", "<|end|>more"]
DEFINED = ["<tool>", "<think>"]

CORPUS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\n ", " \n \n  x", "\t\tx", "a", " a", "a ", "  a  ",
    "Hello, world!", " Hello  world ", "The miller's wheel", "the\nwheel\n\nturns\r\n\r\nslowly", "  leading", "trailing  ",
    "gristmill", " gristmill", "a gristmill b",
    # contractions, in all cases, with other apostrophes, and with the long s that folds to s
    "it's we'll I'd they've don't you're I'm", "IT'S WE'LL I'D THEY'VE DON'T YOU'RE I'M", "It'S we'Ll they'vE", "it’s we’ll",
    "'s's's 't 're 'x 'lL", "o'ſ oʼs", "'", "''", "'''s", " 's", "''ll", "1's 's1",
    # digits
    "1", "12", "123", "1234", "12345678901", " 1 12 123", "3.14159, 1e-6, 0x1F, 12,500", "a1b22c333d4444", "٣٤٥٦ १२३४ １２３４",
    "½ ² Ⅳ ④ 一二三", "12٣45", "  7", "7  ", "x  1  y", "1\n2", "$100 +5 <6 =7 100% #1",
    # white space of all kinds
    "a\u00a0b", "\u00a0\u00a0a", "a\u2003b\u3000c", "a\u200bb", "x\u0085y\u2028z", "\x0b\x0c", "a   b", "a \t b", "a\n\n\n  b",
    "    indented\n        twice\n", "end \n", "end\n ", "\r\r\n\n\r", " \r \n ", "tab\tspace \tmixed", "\ufeffbom",
    # punctuation
    "!!!", " !!!", "...\n", "a,b;c", "(x) [y] {z}", "«Ça» — “quoted” … ¿qué?", "a/b//c\\d", "/\n//\n", "#!/bin/sh\n", "x == y != z <= w",
    "_under_score_", "e-mail@example.org", "`code` ^ ~ |", "++--**//", "\u0000\u0001\u001f\u007f",
    # case
    "HTTPServer camelCaseNames XMLHttpRequest", "ǅ ǈa ʰA ªb ABCdefGHI", "ÉCOLE école ÉÇ", "iPhone", "A", "Aa", "aA", "AA a", "中A 中a A中 A中A b中",
    # scripts
    "日本語のテキスト", "面粉，石头。", "방앗간 주인", "الطاحونة القديمة ١٢٣", "הטחנה הישנה", "पुरानी चक्की", "โรงสีเก่า", "Ελληνικά γράμματα",
    "Старая мельница 1847 года", "ᚠᛇᚻ ᛒᛦᚦ", "𐍈𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "𠀀𪚥 汉字", "\U000e0001\U0010fffd",
    # combining marks, composed and not
    "café", "cafe\u0301", "e\u0301\u0301\u0301", "\u0301", " \u0301a", "\u0301A ", "a\u0301\u0301 B\u0308", "Å \u212b A\u030a", "\u1100\u1161\u11a8",
    "q\u0307\u0323", "\u0e33", "ﬁ ﬃ", "İstanbul ısı",
    # emoji
    "😀", "👩‍👩‍👧‍👦", "🏳️‍🌈 👍🏽", "🇨🇭🇯🇵", "❤️", "a😀b 😀 c", "✊🏿!", "☃", "\ufffd", "\ufffe\uffff",
    # special tokens and things that look like them
    "<|begin|>Hello<|end|>", "<|end|>more", "<|end|>mor", " <|end|> x", "<|end|><|end|>", "<|begin|", "<tool>x</tool>", " <tool> ",
    "<think>\n</think>\n", "<tool", "<s>Hello</s>", "<s> Hello </s> you", "<unk>", "a<unk>b", "<0x41>", "<0x0A>", "<s", "▁", "▁a ▁▁b", "Ġa Ċ", "[INST] x [/INST]",
    # long runs
    "a" * 70, " " * 70, "\n" * 70, "1" * 70, "!" * 70, "é" * 40, "😀" * 20, "ab" * 40, "the " * 20, " the" * 20, "x\n" * 20,
    "def grind(grain, stones=2):\n\treturn [flour for flour in grain]\n",
]


def fuzz(count):
    """Texts of random pieces, among them single characters of every plane that has any."""
    rng = random.Random(20261121)
    pieces = ["the", "mill", "'s", "'LL", " ", "  ", "\n", "\r\n", "\t", "12", "9", "!", "...", "é", "e\u0301", "中", "ß", "A", "Ж", "ع",
              "😀", "\u200d", "\u00a0", "²", "/", "_", "<tool>", "<|end|>", "▁", "ǅ"]
    planes = [(0x20, 0x7f), (0xa0, 0x250), (0x300, 0x370), (0x370, 0x600), (0x900, 0x980), (0x2000, 0x2070), (0x3040, 0x30ff),
              (0x4e00, 0x9fff), (0xac00, 0xd7a0), (0xe000, 0xe010), (0x1f300, 0x1f6ff), (0x20000, 0x2a000), (0xe0100, 0xe01ef),
              (0x100000, 0x10fff0)]
    for _ in range(count):
        parts = [rng.choice(pieces) if rng.random() < 0.8 else chr(rng.randrange(*rng.choice(planes)))
                 for _ in range(rng.randrange(1, 14))]
        yield "".join(parts)


GPT2_REGEX = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3_REGEX = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                r"|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN_REGEX = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
                r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
                r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT4O_REGEX = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
               r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
               r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
EXAONE_MOE_REGEX = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
                    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+")
AFMOE_REGEXES = [
    r"\p{Nd}{1,510}(?=(?>\p{Nd}{510})*(?:\P{Nd}|$))|\G\p{Nd}{510}",
    r"\A\p{Nd}{1,2}(?=\p{Nd}{3}+\z)",
    r"\A\p{Nd}{3}|\G\p{Nd}{3}",
    r"(?:[\u4E00-\u9FFF\u3040-\u309F\u30A0-\u30FF\u3400-\u4DBF\uf900-\uFAFF\uFF65-\uFF9F\u2F00-\u2FDF]+|[\u0E00-\u0E7F]+"
    r"|[\u0E80-\u0EFF]+|[\u1780-\u17FF]+|[\u1000-\u109F\uAA60-\uAA7F\uA9E0-\uA9FF]+|[\uAC00-\uD7AF\u1100-\u11FF]+)",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
]

DEEPSEEK_V3_REGEXES = [
    r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
]

# Digits are cut afterwards.
DEEPSEEK_LLM_REGEXES = [
    "[\r\n]",
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
    "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$", "[一-龥\u0800-一가-\ud7ff]+",
]
KIMI_K2_REGEX = (
    r"[\p{Han}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
YOUTU_REGEXES = [
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+", GPT4O_REGEX.replace(r"\p{N}{1,3}", r"\p{N}"),
]


def regexes(*patterns, then=()):
    splits = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in patterns]
    return pre_tokenizers.Sequence(splits + [*then, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


BYTE_LEVEL = {
    "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    "smollm": pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ]),
    "llama-bpe": regexes(LLAMA3_REGEX),
    "qwen2": None,  # Qwen2Tokenizer brings its own
    "tekken": regexes(TEKKEN_REGEX),
    "gpt-4o": regexes(GPT4O_REGEX),
    "tiny_aya": regexes(r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O_REGEX),
    "exaone-moe": regexes(EXAONE_MOE_REGEX),
    "afmoe": regexes(*AFMOE_REGEXES),
    "deepseek-v3": regexes(*DEEPSEEK_V3_REGEXES),
    "deepseek-llm": regexes(*DEEPSEEK_LLM_REGEXES, then=[pre_tokenizers.Digits(individual_digits=True)]),
    "kimi-k2": regexes(KIMI_K2_REGEX),
    "youtu": regexes(*YOUTU_REGEXES),
    "default": regexes(r"[\p{P}$+<=>^~|]+", GPT2_REGEX, r"\p{N}+", r"[0-9][0-9][0-9]"),
}


def train_byte_level():
    """A vocabulary and merges whose words may hold anything that one of the families puts into a word."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = regexes(r"\s*\S+|\s+")
    trainer = trainers.BpeTrainer(
        vocab_size=760, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), special_tokens=[], show_progress=False)
    tokenizer.train([str(TEXT)], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    vocab = model["vocab"]
    # A word that no merges lead to: only families that take words whole may give it.
    vocab["Ġgristmill"] = len(vocab)
    return vocab, [tuple(merge) for merge in model["merges"]]


def byte_level(pre, vocab, merges):
    whole_words = pre in ("llama-bpe", "tekken", "gpt-4o", "youtu")
    if pre == "qwen2":
        tokenizer = Qwen2Tokenizer(vocab=vocab, merges=merges, unk_token=None, eos_token=None, pad_token=None)
    elif pre == "gpt-2":
        tokenizer = GPT2Tokenizer(vocab=vocab, merges=merges, unk_token=None, bos_token=None, eos_token=None)
    else:
        backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=whole_words))
        backend.pre_tokenizer = BYTE_LEVEL[pre]
        backend.decoder = decoders.ByteLevel()
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in DEFINED])
    assert len(tokenizer) == len(vocab) + len(CONTROL) + len(DEFINED), (pre, len(tokenizer), len(vocab))
    tokens = sorted(vocab, key=vocab.get) + CONTROL + DEFINED
    types = [1] * len(vocab) + [3] * len(CONTROL) + [4] * len(DEFINED)
    begin = len(vocab)
    return tokenizer, {
        "model": "gpt2", "pre": pre, "tokens": tokens, "scores": [], "types": types,
        "merges": [" ".join(merge) for merge in merges], "bos": begin, "eos": begin + 1, "unknown": None, "add_bos": True,
    }


def sentencepiece_style():
    """Llama 2's kind: a SentencePiece model, and the tokenizers pipeline of its published tokenizer.json."""
    buffer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        input=str(TEXT), model_writer=buffer, model_type="bpe", vocab_size=760, byte_fallback=True, split_digits=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.98,
        user_defined_symbols=DEFINED, minloglevel=2)
    model = sentencepiece.SentencePieceProcessor(model_proto=buffer.getvalue())
    size = model.vocab_size()
    tokens = [model.id_to_piece(i) for i in range(size)]
    scores = [model.get_score(i) for i in range(size)]
    kinds = [(model.is_unknown, 2), (model.is_control, 3), (model.is_byte, 6), (model.is_unused, 5)]
    types = [next((kind for test, kind in kinds if test(i)), 4 if tokens[i] in DEFINED else 1) for i in range(size)]

    vocab = {token: i for i, token in enumerate(tokens)}
    pairs = [(-scores[i], i, token[:cut], token[cut:]) for i, token in enumerate(tokens) if types[i] == 1
             for cut in range(1, len(token)) if token[:cut] in vocab and token[cut:] in vocab]
    merges = [(left, right) for _, _, left, right in sorted(pairs, key=lambda pair: pair[:2])]

    def pipeline(prefix, merges):
        backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        steps = [normalizers.Prepend("▁")] * prefix + [normalizers.Replace(" ", "▁")]
        backend.normalizer = normalizers.Sequence(steps)
        backend.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()] + [decoders.Strip(" ", 1, 0)] * prefix)
        special = [AddedToken(token, special=True, normalized=False) for token in ("<unk>", "<s>", "</s>")]
        backend.add_special_tokens(special)
        backend.add_tokens([AddedToken(token, special=False, normalized=False) for token in DEFINED])
        return PreTrainedTokenizerFast(tokenizer_object=backend)

    # SentencePiece itself must agree wherever no special token is in the text.
    tokenizer = pipeline(True, merges)
    for text in CORPUS:
        if text and not any(token in text for token in ["<unk>", "<s>", "</s>", "\0"] + DEFINED):
            assert model.encode(text) == tokenizer.encode(text), text
    about = {"model": "llama", "pre": "default", "tokens": tokens, "scores": scores, "types": types, "merges": [],
             "bos": 1, "eos": 2, "unknown": 0, "add_bos": True}
    # Gemma 4's kind: a list of merges in an order of its own, and scores that say nothing.
    order = random.Random(4).sample(merges, len(merges))
    listed = about | {"model": "gemma4", "pre": None, "scores": [-1000.0] * size, "merges": [" ".join(m) for m in order]}
    return (tokenizer, about), (pipeline(False, merges), about), (pipeline(False, order), listed)


def cases(tokenizer, texts):
    for text in texts:
        tokenizer.backend_tokenizer.encode_special_tokens = False
        ids = tokenizer.encode(text, add_special_tokens=False)
        tokenizer.backend_tokenizer.encode_special_tokens = True
        plain = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.backend_tokenizer.encode_special_tokens = False
        case = {"ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=True)}
        if plain != ids:
            case["plain"] = plain
        whole = tokenizer.decode(ids, skip_special_tokens=False)
        if whole != case["decoded"]:
            case["decoded_whole"] = whole
        yield case


def broken(tokenizer, size, count):
    """Random ids, whose bytes are mostly not UTF-8."""
    rng = random.Random(7)
    for _ in range(count):
        ids = [rng.randrange(size) for _ in range(rng.randrange(1, 12))]
        yield {"ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=True)}


def write(name, value):
    """One entry a line."""
    dump = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, list):
        text = "[\n" + ",\n".join(map(dump, value)) + "\n]\n"
    else:
        lines = []
        for key, entry in value.items():
            many = key in ("cases", "broken", "cases_without_prefix")
            entry = "[\n" + ",\n".join(map(dump, entry)) + "\n]" if many else dump(entry)
            lines.append(f"{dump(key)}:{entry}")
        text = "{\n" + ",\n".join(lines) + "\n}\n"
    (OUT / f"{name}.json").write_text(text, encoding="utf-8")


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    texts = CORPUS + list(fuzz(60))
    write("corpus", texts)
    vocab, merges = train_byte_level()
    for pre in BYTE_LEVEL:
        tokenizer, about = byte_level(pre, dict(vocab), merges)
        write(pre, about | {
            "cases": list(cases(tokenizer, texts)),
            "broken": list(broken(tokenizer, len(vocab), 20)),
        })
    (tokenizer, about), (without, _), (listed, gemma4) = sentencepiece_style()
    write("gemma4", gemma4 | {"cases": list(cases(listed, texts)), "broken": []})
    write("llama", about | {
        "cases": list(cases(tokenizer, texts)),
        "cases_without_prefix": list(cases(without, texts)),
        "broken": [],
    })


main()
