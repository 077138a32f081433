"""lm-eval scores texts through /v1/completions and the server's tokenizer; gristmill perplexity scores the same ones.

python with_lm_eval.py SERVER GRISTMILL MODEL TEXT...
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import urllib.request

# It would look for its data elsewhere.
os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"

import lm_eval

SERVER, GRISTMILL, MODEL = sys.argv[1:4]
# Tokens of a window, of which perplexity scores those behind the first of the second half.
WINDOW = 128
GIVEN = WINDOW // 2 + 1
CHOICES = [
    ("The opposite of hot is", ["cold", "green", "seven"], 0),
    ("Water freezes into", ["bread", "ice", "music"], 1),
    ("A week has seven", ["days", "legs", "wheels"], 0),
    ("Cows give", ["paper", "petrol", "milk"], 2),
    ("The sun rises in the", ["east", "fridge", "evening"], 0),
    ("A bird can", ["evaporate", "fly", "rust"], 1),
    ("Paris is the capital of", ["France", "Tuesday", "copper"], 0),
    ("Two and two make", ["nine", "blue", "four"], 2),
]


def post(path, **body):
    request = urllib.request.Request(
        SERVER + path, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)


def windows():
    """Texts of exactly one window: what is given, and what is scored."""
    for path in sys.argv[4:]:
        tokens = post("/tokenize", prompt=open(path, encoding="utf-8").read(), add_special_tokens=False)["tokens"]
        for start in range(0, len(tokens) - WINDOW + 1, WINDOW):
            window = tokens[start : start + WINDOW]
            halves = [post("/detokenize", tokens=part)["prompt"] for part in (window[:GIVEN], window[GIVEN:])]
            # lm-eval moves white space from the end of a context to what follows it.
            whole = post("/tokenize", prompt="".join(halves), add_special_tokens=False)["tokens"] == window
            if whole and halves[0] == halves[0].rstrip():
                yield halves


def perplexity(text):
    command = [GRISTMILL, "perplexity", "--json", "--quiet", "--ctx", str(WINDOW), "--file", "-", MODEL]
    said = subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, check=True).stdout
    return json.loads(said)["perplexity"]


def logprob(context, choice):
    """The sum of the choice's log-probabilities, asked without lm-eval."""
    whole = context + " " + choice
    reply = post("/v1/completions", prompt=whole, max_tokens=1, echo=True, logprobs=1, temperature=0)["choices"][0]
    found = reply["logprobs"]
    return sum(
        value
        for at, value in zip(found["text_offset"], found["token_logprobs"])
        if len(context) <= at < len(whole)
    )


def task(name, documents, folder, **config):
    path = os.path.join(folder, name + ".jsonl")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(document) + "\n" for document in documents)
    data = dict(dataset_path="json", dataset_kwargs={"data_files": {"test": path}}, test_split="test")
    return dict(task=name, target_delimiter="", **data, **config)


with tempfile.TemporaryDirectory() as folder:
    os.environ["HF_DATASETS_CACHE"] = folder
    texts = list(windows())[:24]
    assert len(texts) >= 12, f"{len(texts)} windows are too few"
    tasks = [
        task(
            "windows",
            [dict(context=first, rest=rest) for first, rest in texts],
            folder,
            output_type="loglikelihood",
            doc_to_text="{{context}}",
            doc_to_target="{{rest}}",
            metric_list=[dict(metric="perplexity", aggregation="perplexity", higher_is_better=False)],
        ),
        task(
            "choices",
            [dict(context=context, choices=[" " + choice for choice in choices], right=right) for context, choices, right in CHOICES],
            folder,
            output_type="multiple_choice",
            doc_to_text="{{context}}",
            doc_to_choice="{{choices}}",
            doc_to_target="right",
            metric_list=[dict(metric="acc", aggregation="mean", higher_is_better=True)],
        ),
        task(
            "continued",
            [dict(context=context, right="") for context, _, _ in CHOICES],
            folder,
            output_type="generate_until",
            doc_to_text="{{context}}",
            doc_to_target="{{right}}",
            generation_kwargs=dict(until=[".", "\n"], max_gen_toks=16, temperature=0, do_sample=False),
            metric_list=[dict(metric="exact_match", aggregation="mean", higher_is_better=True)],
        ),
    ]
    model = json.load(urllib.request.urlopen(SERVER + "/v1/models"))["data"][0]["id"]
    results = lm_eval.simple_evaluate(
        model="local-completions",
        model_args=dict(
            model=model,
            base_url=SERVER + "/v1/completions",
            tokenizer_backend="remote",
            tokenized_requests=True,
            num_concurrent=4,
            max_length=2048,
        ),
        tasks=tasks,
        log_samples=True,
        bootstrap_iters=0,
    )
samples = {name: sorted(found, key=lambda sample: sample["doc_id"]) for name, found in results["samples"].items()}

worst = 0.0
for (first, rest), sample in zip(texts, samples["windows"], strict=True):
    of_lm_eval = float(sample["resps"][0][0][0]) if isinstance(sample["resps"][0][0], (list, tuple)) else float(sample["resps"][0][0])
    own = -math.log(perplexity(first + rest)) * (WINDOW - GIVEN)
    worst = max(worst, abs(of_lm_eval - own))
    assert abs(of_lm_eval - own) < 1e-3, f"{of_lm_eval} by lm-eval, {own} by perplexity: {first + rest!r}"
print(f"ok: {len(texts)} windows of {WINDOW} tokens score as by gristmill perplexity; the largest difference is {worst:.1e} nats")

right = 0
for (context, choices, best), sample in zip(CHOICES, samples["choices"], strict=True):
    own = [logprob(context, choice) for choice in choices]
    right += own.index(max(own)) == best
accuracy = results["results"]["choices"]["acc,none"]
assert abs(accuracy - right / len(CHOICES)) < 1e-9, f"lm-eval: {accuracy}; asked one by one: {right}"
print(f"ok: {right} of {len(CHOICES)} multiple choices are right, asked by lm-eval and one by one")

for (context, _, _), sample in zip(CHOICES, samples["continued"], strict=True):
    own = post("/v1/completions", prompt=context, max_tokens=16, temperature=0, stop=[".", "\n"])["choices"][0]["text"]
    assert sample["resps"][0][0] == own, f"{sample['resps'][0][0]!r} by lm-eval, {own!r} asked alone"
print(f"ok: {len(CHOICES)} continuations are those of single requests")
