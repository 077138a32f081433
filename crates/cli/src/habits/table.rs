//! The options and commands of other programs.

/// What an option of another program means here.
pub(super) enum Meaning {
    /// The value goes to this option.
    Is(&'static str),
    /// The value goes to this option, after this prefix.
    Prefixed(&'static str, &'static str),
    /// An option without a value.
    Flag(&'static str),
    /// It is always so; the option may have one of these values.
    Always(&'static [&'static str]),
    /// The option has one of these values, with which it is so anyway; the line is about others.
    Only(&'static [&'static str], &'static str),
    /// gristmill reads it from the model itself, so the value is left out.
    Found,
    /// Layers on a GPU: all of them or none.
    GpuLayers,
    /// It is not there; the line says what to do.
    No(&'static str),
}

use Meaning::{Always, Flag, Found, GpuLayers, Is, No, Only, Prefixed};

/// The names of options, and their meaning. If a name is in several rows, the first one counts whose option the command
/// has.
pub(super) const HABITS: &[(&str, Meaning)] = &[
    ("-hf -hfr --hf-repo", Prefixed("--model", "hf:")),
    ("-hff --hf-file", No("name the file after the repository: -m hf:ORG/REPO:FILE.gguf")),
    ("-ngl --n-gpu-layers --gpu-layers", GpuLayers),
    ("-ncmoe --n-cpu-moe", Prefixed("--experts-on", "cpu:")),
    ("-cmoe --cpu-moe", Flag("--experts-on=cpu")),
    ("--temperature", Is("--temp")),
    ("-md --model-draft", Is("--draft-model")),
    ("--draft-max --draft-n", Is("--draft-tokens")),
    ("-ctk --cache-type-k -ctv --cache-type-v", Is("--kv")),
    ("-np", Is("--parallel")),
    ("-np", No("gristmill serve --parallel N is the number of replies at a time")),
    // `bench --batch` is the number of sequences.
    ("-ub --ubatch-size", Is("--chunk")),
    ("-b --batch-size -ub --ubatch-size", Is("--batch")),
    ("-b --batch-size -ub --ubatch-size", No("leave it out; gristmill serve --batch N limits the tokens of a step")),
    ("-j", Is("--json-schema")),
    ("--grammar-file", Is("--grammar")),
    ("-s", Is("--seed")),
    ("-sys --system-prompt", Is("--system")),
    ("-r --reverse-prompt", Is("--stop")),
    ("--api-key-file", Is("--keys")),
    ("-no-cnv --no-conversation", Flag("--raw")),
    ("-fa --flash-attn", Always(&["on", "auto", "1"])),
    ("-hfd -hfrd --hf-repo-draft", Prefixed("--draft-model", "hf:")),
    ("-mg --main-gpu", Prefixed("--device", "cuda:")),
    ("--chat-template-file", Is("--chat-template")),
    ("--ssl-key-file --ssl-keyfile", Is("--tls-key")),
    ("--ssl-cert-file --ssl-certfile", Is("--tls-cert")),
    ("--models-dir", Is("--model")),
    ("--sleep-idle-seconds", Is("--idle")),
    ("--no-webui --no-ui", Flag("--no-page")),
    ("--log-disable", Flag("--quiet")),
    ("-mm", Is("--mmproj")),
    ("--no-mmproj", Flag("--mmproj=none")),
    (
        "--jinja --metrics --embeddings --embedding --reranking --rerank --slots --props --webui --ui -cb \
         --cont-batching -kvu --kv-unified --cache-prompt --no-context-shift --warmup --no-warmup \
         --no-mmproj --perf --no-display-prompt",
        Always(&[]),
    ),
    ("--reasoning-format", Only(&["auto", "deepseek"], "reasoning is always in reasoning_content; leave it out")),
    ("-st --single-turn", No("leave it out: gristmill run answers one message, and gristmill chat many")),
    ("-cnv --conversation -i --interactive", No("talk with gristmill chat MODEL")),
    ("--api-key", No("set GRISTMILL_API_KEY, or name a file with --keys FILE")),
    ("--mmap --no-mmap --mlock", No("leave it out: weights are read into memory, on a CPU too")),
    (
        "--lora --lora-scaled --enable-lora --lora-modules",
        No("adapters are not supported; merge it into the model before gristmill convert"),
    ),
    ("--mmproj-url", No("download the file, and name it with --mmproj FILE")),
    ("--mmproj -mm --image", No("gristmill run, chat and serve read images; leave it out")),
    (
        "--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor \
         --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast",
        No("leave it out: the scaling of the model file is used"),
    ),
    ("--override-kv", No("leave it out: the keys of the model file are used")),
    ("--numa", No("leave it out, or start gristmill with numactl")),
    (
        "--prio --poll -C --cpu-mask -Cr --cpu-range --cpu-strict",
        No("leave it out, or start gristmill with nice and taskset"),
    ),
    ("-tb --threads-batch", No("-t is the number of threads, for prompts too")),
    (
        "-sm --split-mode -ts --tensor-split",
        No("name the devices with --device cuda:0,1; --split is experts, tensor or layers; each device has as much"),
    ),
    (
        "-ot --override-tensor",
        No("for experts on the CPU use --experts-on cpu, or cpu:N for those of the first N layers"),
    ),
    (
        "-nkvo --no-kv-offload --no-op-offload --n-cpu-ffn",
        No("everything but experts is on one device; --experts-on cpu makes room there"),
    ),
    ("--list-devices", No("gristmill doctor shows the devices")),
    ("-fit --fit", No("leave it out: gristmill fit MODEL shows what fits")),
    ("--swa-full", No("leave it out: layers with a window keep only the window")),
    (
        "-cram --cache-ram --cache-reuse --slot-save-path",
        No("leave it out: the prefix cache is a part of the KV cache, whose size is --kv-tokens"),
    ),
    ("--context-shift", No("a reply ends when the context is full; --ctx sets its size")),
    ("-to --timeout", No("leave it out: a reply has no time limit")),
    ("--threads-http", No("leave it out; --parallel is the number of replies at a time")),
    ("-n --predict --n-predict", No("requests set max_tokens")),
    ("-s --seed", No("requests set seed")),
    ("--grammar --grammar-file -j --json-schema", No("requests set response_format")),
    ("--chat-template-kwargs --default-chat-template-kwargs", No("requests set chat_template_kwargs")),
    ("-rea --reasoning", No("requests set enable_thinking")),
    ("--reasoning-effort", No("requests set reasoning_effort")),
    ("--reasoning-budget", No("requests set thinking_budget")),
    (
        "--samplers --sampling-seq --sampler-seq --mirostat --typical --typical-p --xtc-probability --top-n-sigma \
         --top-nsigma --dynatemp-range --repeat-last-n",
        No("leave it out: the samplers are temp, top-k, top-p, min-p, penalties and DRY"),
    ),
    (
        "--spec-type --spec-default --spec-draft-n-max --speculative-config",
        No("use --draft mtp, --draft lookup or --draft-model, and --draft-tokens"),
    ),
    ("--draft-min --draft-n-min --draft-p-min", No("leave it out, or set --draft-tokens")),
    (
        "-ngld --n-gpu-layers-draft --gpu-layers-draft -devd --device-draft",
        No("leave it out: the draft model is on the device of the model"),
    ),
    (
        "--models-max --models-preset",
        No("leave it out: models are loaded as memory allows; --pin and --idle choose which stay"),
    ),
    ("--pooling", No("leave it out: the model file sets the pooling")),
    (
        "--log-file --log-prefix --log-timestamps --log-colors -lv --log-verbosity",
        No("use --verbose or --quiet, or --access-log FILE; messages are on standard error"),
    ),
    ("--api-prefix --root-path", No("let a reverse proxy remove the prefix")),
    ("--max-model-len", Is("--ctx")),
    ("--served-model-name", Is("--name")),
    ("--max-num-seqs", Is("--parallel")),
    ("--max-num-batched-tokens", Is("--batch")),
    (
        "--enable-auto-tool-choice --enable-prefix-caching --enable-chunked-prefill --enable-reasoning \
         --trust-remote-code --disable-log-requests --no-enable-log-requests",
        Always(&[]),
    ),
    ("--tool-call-parser --reasoning-parser --tokenizer", Found),
    ("--dtype", Only(&["auto"], "leave it out: the file has the types of the weights")),
    ("--quantization", Only(&["gguf"], "leave it out for a GGUF file; --quantize FORMAT quantises a folder")),
    ("--kv-cache-dtype", Only(&["auto"], "use --kv q8_0 for a cache of 8 bits")),
    ("--gpu-memory-utilization", No("--gpu-memory SIZE limits the memory, as in 20GB")),
    (
        "-tp --tensor-parallel-size -pp --pipeline-parallel-size -dp --data-parallel-size",
        Only(&["1"], "a model is on one device, whole; choose it with --device cuda:N"),
    ),
    ("--enforce-eager", No("leave it out; a GPU's steps are replayed from graphs")),
];

/// Commands of Ollama that are not here.
pub(super) const COMMANDS: &[(&str, &str)] = &[
    ("ps", "curl http://127.0.0.1:8080/v1/models lists the models of a server, and which are loaded"),
    ("stop", "end the server with Ctrl-C, or with a signal to its process"),
    ("create", "pass the settings as options (gristmill run --help), or keep them in a file (gristmill config)"),
    ("cp", "a model is a file; copy it, or name it with gristmill serve --alias NAME"),
    ("push", "gristmill uploads nothing"),
    ("signin", "set HF_TOKEN to a token of the hub for models that need one"),
];
