"""The tiny random models: their shapes, as data, and the constants that they share."""

from dataclasses import dataclass, field

VOCAB = 288
LENGTHS = (32, 14, 5)
CONTEXT = 128
EPS = 1e-5
# Gemma 2's caps, so low that these models' logits reach them.
ATTENTION_CAP = 2.0
LOGIT_CAP = 3.0
# The part of the pairs that Gemma 4 rotates where a layer sees everything.
PROPORTION = 0.25
# NMSE of the logits that the test allows, by format.
TOLERANCE = {"f32": 1e-6, "q8_0": 1e-3, "q4_k_m": 1e-3, "mxfp4": 1e-3, "low": 1e-3, "ik": 1e-3}
# The k-th and the next router logit are at least this far apart.
ROUTER_GAP = 0.25
# SparseMixer shares between logits that differ by up to this part of the larger (2 · router_jitter_noise).
SPARSE_MIXER_NEAR = 0.02
# So that this happens, the F32 model's routers may come closer to a tie.
SPARSE_MIXER_GAP = 0.01
# Granite's multipliers of embeddings, attention logits and residuals, and its divisor of logits.
GRANITE = dict(embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.7, logits_scaling=2.5)
# What multiplies the experts' weights in `deepseek`.
ROUTED_SCALE = 1.4
# The k-th and the next score that choose, of routers with a selection bias, are at least this far apart.
SELECTION_GAP = 0.03


@dataclass
class Shape:
    """A tiny model."""

    arch: str
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head: int
    experts: int = 0
    top_k: int = 0
    tied: bool = False
    bias: bool = False
    shared: int = 0
    dense: int = 0  # leading layers without experts
    window: int = 0
    full_heads: int = 0  # queries of layers that see everything, if others see a window
    full_head: int = 0  # of layers that see everything, if others see a window
    full_kv_heads: int = 0  # likewise; their values are their keys
    beside: int = 0  # width of an MLP beside the experts
    fused: bool = False  # gate and up of the experts are one tensor
    per_layer: int = 0  # width of an input that each layer has of its own
    shares: int = 0  # the last so many layers read the caches of others, and have MLPs of twice the width
    period: int = 0  # the last of so many layers sees everything
    limits: tuple = ()  # of SwiGLU in each layer: those of routed experts, those of a shared expert or a dense MLP
    step: int = 1  # the last of so many layers has experts
    element_gate: bool = False  # of attention's output, where a family has models with one for each head
    layers: int = 2
    full: tuple = ()  # layers with attention, if others have none
    pattern: str = ""  # a letter for each layer, if one is a mixer or an MLP: M, *, -, E
    theta: float = 10000.0
    rotary: int = 0  # elements of a head that are rotated; 0: all
    qk_norm: bool = False  # where a family has models with and without
    scale: float = 1.0  # multiplies the experts' weights
    groups: int = 1  # of experts; half of them take part
    latent: int = 0  # elements of the row from which latent attention makes keys and values, without the rotated ones
    rank: int = 0  # elements between the two projections of its queries; 0: one projection
    value: int = 0  # elements of a head's value
    joined: bool = False  # the tensors of its keys and values are one
    nextn: int = 0  # layers that predict further tokens, which follow the others
    rope: dict = field(default_factory=dict)
    gain: dict = field(default_factory=dict)  # by part of a weight's name, besides that of all models


LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
LINEAR = dict(rope_type="linear", factor=4.0)
# Its correction range begins and ends between two pairs.
UNTRUNCATED = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=4.0, truncate=False)
SHORT = [1.0, 1.1, 1.2, 1.3]
LONG = [1.5, 2.5, 4.0, 7.0]
LONGROPE = dict(rope_type="longrope", short_factor=SHORT, long_factor=LONG, short_mscale=1.2, long_mscale=1.2)
# The temperature of attention grows with every original context.
MINISTRAL = dict(rope_type="yarn", factor=16.0, original_max_position_embeddings=8, beta_fast=8.0, mscale=1.0,
                 mscale_all_dim=1.0, llama_4_scaling_beta=0.1)
DEEPSEEK = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32, mscale=1.0, mscale_all_dim=1.0)
PHI3 = dict(rope_type="longrope", short_factor=SHORT, long_factor=LONG)

MODELS = {
    "llama3-f32": Shape("llama", 64, 128, 4, 2, 16, theta=500000.0, rope=LLAMA3),
    "llama3-q8_0": Shape("llama", 64, 128, 4, 2, 16, theta=500000.0, rope=LLAMA3),
    "llama3-q4_k_m": Shape("llama", 256, 256, 8, 2, 32, theta=500000.0, rope=LLAMA3),
    "llama-tied-f32": Shape("llama", 96, 64, 3, 1, 32, tied=True),
    "llama-tied-q8_0": Shape("llama", 96, 64, 3, 1, 32, tied=True),
    "llama-linear-f32": Shape("llama", 32, 64, 2, 2, 16, bias=True, rope=LINEAR),
    "llama-yarn-f32": Shape("llama", 64, 64, 2, 1, 32, rope=YARN),
    "mixtral-f32": Shape("mixtral", 32, 16, 4, 2, 8, 8, 2),
    "mixtral-q8_0": Shape("mixtral", 32, 32, 4, 2, 8, 8, 2),
    "granite-f32": Shape("granite", 32, 48, 4, 2, 8, tied=True),
    "granitemoe-f32": Shape("granitemoe", 32, 16, 4, 2, 8, 6, 2, tied=True),
    "granitemoe-q8_0": Shape("granitemoe", 32, 32, 4, 2, 8, 6, 2, shared=64),
    "phimoe-f32": Shape("phimoe", 32, 16, 4, 2, 8, 6, 2, bias=True, rope=LONGROPE | dict(original_max_position_embeddings=64)),
    "phimoe-q8_0": Shape("phimoe", 32, 32, 4, 2, 8, 6, 2, bias=True, rope=LONGROPE | dict(original_max_position_embeddings=32)),
    "deepseek-f32": Shape("deepseek", 32, 16, 4, 4, 8, 6, 2, shared=32, dense=1),
    "deepseek-q8_0": Shape("deepseek", 64, 32, 4, 4, 16, 6, 2, shared=64, dense=1),
    "deepseek2-f32": Shape("deepseek2", 32, 16, 4, 1, 24, 8, 2, shared=16, dense=1, rotary=8, latent=32, rank=24, value=12,
                           scale=2.5, groups=2, rope=DEEPSEEK),
    "deepseek2-q8_0": Shape("deepseek2", 64, 32, 4, 1, 48, 8, 2, shared=32, dense=1, rotary=16, latent=64, rank=32,
                            value=16, scale=2.5, groups=2,
                            gain={"q_b_proj": 0.7, "kv_a_proj": 0.8, "o_proj": 0.8}),
    "deepseek2-lite-f32": Shape("deepseek2", 32, 16, 4, 1, 24, 8, 2, shared=32, dense=1, rotary=8, latent=32, value=12,
                                scale=2.0, groups=4, joined=True),
    "deepseek2-lite-q8_0": Shape("deepseek2", 64, 32, 4, 1, 48, 8, 2, shared=64, dense=1, rotary=16, latent=64, value=16,
                                 scale=2.0, groups=4, joined=True,
                                 gain={"q_proj": 0.7, "kv_a_proj": 0.8, "o_proj": 0.8}),
    "nemotron_h-f32": Shape("nemotron_h", 32, 48, 4, 2, 8, layers=5, pattern="M-*-M"),
    "nemotron_h-q8_0": Shape("nemotron_h", 64, 96, 4, 2, 16, layers=4, pattern="M-*-", gain={"o_proj": 1.6}),
    "nemotron_h_moe-f32": Shape("nemotron_h_moe", 32, 16, 4, 2, 8, 8, 2, shared=48, scale=2.5, layers=4, pattern="MEM*"),
    "nemotron_h_moe-latent-f32": Shape("nemotron_h_moe", 64, 32, 4, 2, 16, 8, 3, shared=32, scale=2.0, layers=4,
                                       pattern="ME*E", latent=32),
    "nemotron_h_moe-q8_0": Shape("nemotron_h_moe", 64, 32, 4, 2, 16, 8, 2, shared=64, scale=2.5, layers=3, pattern="M*E",
                                 latent=32),
    "granitehybrid-f32": Shape("granitehybrid", 32, 16, 4, 2, 8, 6, 2, tied=True, shared=32, layers=3, full=(1,)),
    "granitehybrid-q8_0": Shape("granitehybrid", 64, 96, 4, 2, 16, tied=True, full=(1,),
                                gain={"out_proj": 1.8, "o_proj": 2.2, "output_linear": 1.8}),
    "mamba2-f32": Shape("mamba2", 32, 0, 0, 0, 0, layers=3, tied=True),
    "mamba2-q8_0": Shape("mamba2", 64, 0, 0, 0, 0),
    "falcon-h1-f32": Shape("falcon-h1", 32, 48, 4, 2, 8, theta=1e11, qk_norm=True),
    "falcon-h1-plain-f32": Shape("falcon-h1", 32, 48, 4, 2, 16, theta=1e11),
    "falcon-h1-q8_0": Shape("falcon-h1", 64, 96, 4, 2, 16, theta=1e11,
                            layers=1, gain={"out_proj": 1.2, "o_proj": 1.5}),
    "granitehybrid-bamba-f32": Shape("bamba", 32, 48, 4, 2, 8, layers=3, full=(1,)),
    "jamba-f32": Shape("jamba", 32, 48, 4, 2, 8, 4, 2, layers=4, full=(2,), step=2, rank=8),
    "kimi-linear-f32": Shape("kimi-linear", 32, 16, 4, 1, 24, 8, 2, shared=16, dense=1, layers=3, full=(2,), rotary=8,
                             latent=32, value=12, scale=2.446),
    "kimi-linear-q8_0": Shape("kimi-linear", 64, 32, 4, 1, 48, 8, 2, shared=32, dense=1, full=(1,), rotary=16, latent=64,
                              value=16, scale=2.446, joined=True,
                              gain={"o_proj": 0.6, "f_b_proj": 0.5, "mlp.down_proj": 0.7, "shared_experts.down_proj": 1.5}),
    "bailingmoe3-f32": Shape("bailingmoe3", 32, 16, 4, 1, 24, 8, 2, shared=16, dense=1, layers=3, full=(2,), theta=6e6,
                             rotary=8, latent=32, value=12, scale=2.5, groups=2),
    "bailingmoe3-q8_0": Shape("bailingmoe3", 64, 32, 4, 1, 48, 8, 2, shared=32, dense=1, full=(1,), theta=6e6, rotary=16,
                              latent=64, value=16, scale=2.5, groups=2,
                              gain={"o_proj": 0.6, "f_proj": 0.5, "mlp.down_proj": 0.7, "shared_experts.down_proj": 1.3}),
    "mistral4-f32": Shape("mistral4", 32, 16, 4, 1, 24, 8, 2, shared=16, rotary=8, latent=32, rank=24, value=12,
                          rope=MINISTRAL),
    "glm4-lite-f32": Shape("glm4_moe_lite", 32, 16, 4, 1, 24, 8, 2, shared=16, dense=1, rotary=8, latent=32, rank=24,
                           value=16, scale=1.8, theta=1e6),
    "youtu-f32": Shape("youtu", 32, 48, 4, 1, 24, tied=True, rotary=8, latent=32, rank=24, value=12, theta=1.6e6),
    "gemma2-f32": Shape("gemma2", 32, 64, 4, 2, 16, tied=True, layers=3, window=9),
    "gemma2-q8_0": Shape("gemma2", 64, 64, 4, 2, 16, tied=True, window=9),
    "gemma4-f32": Shape("gemma4", 32, 64, 4, 2, 16, tied=True, layers=3, theta=1e6, window=9, period=3, full_head=32,
                        full_kv_heads=1),
    "gemma4-q8_0": Shape("gemma4", 64, 64, 4, 2, 16, tied=True, layers=2, theta=1e6, window=9, period=2, full_head=32,
                         full_kv_heads=1),
    "gemma4-moe-f32": Shape("gemma4", 32, 16, 4, 2, 16, 8, 2, tied=True, layers=3, theta=1e6, window=9, period=3,
                            full_head=32, full_kv_heads=1, beside=48),
    "gemma4-moe-q8_0": Shape("gemma4", 64, 32, 4, 2, 16, 8, 2, tied=True, layers=2, theta=1e6, window=9, period=2,
                             full_head=32, full_kv_heads=1, beside=64, fused=True),
    "gemma4-e-f32": Shape("gemma4", 32, 48, 4, 1, 16, tied=True, layers=6, theta=1e6, window=9, period=2, full_head=32,
                          per_layer=8, shares=3),
    "gemma4-e-q8_0": Shape("gemma4", 64, 64, 4, 2, 16, tied=True, theta=1e6, window=9, period=1, full_head=32,
                           per_layer=32, shares=1),
    "gemma3-f32": Shape("gemma3", 32, 64, 4, 1, 16, tied=True, layers=7, theta=1e6, window=9, rope=LINEAR),
    "gemma3-q8_0": Shape("gemma3", 64, 64, 4, 1, 16, tied=True, layers=3, theta=1e6, window=9, period=2),
    "qwen2-f32": Shape("qwen2", 64, 96, 4, 2, 16, theta=1e6, bias=True),
    "qwen2-q4_k_m": Shape("qwen2", 256, 256, 4, 1, 64, tied=True, theta=1e6, bias=True),
    "qwen2moe-f32": Shape("qwen2moe", 64, 32, 4, 2, 16, 8, 3, theta=1e6, bias=True, shared=96),
    "qwen2moe-q8_0": Shape("qwen2moe", 64, 32, 4, 2, 16, 8, 3, theta=1e6, bias=True, shared=96),
    "qwen2moe-q4_k_m": Shape("qwen2moe", 256, 256, 4, 2, 64, 4, 2, theta=1e6, bias=True, shared=256),
    "olmoe-f32": Shape("olmoe", 64, 32, 4, 2, 16, 8, 2),
    "olmoe-q4_k_m": Shape("olmoe", 256, 256, 4, 4, 64, 4, 2),
    "qwen3-f32": Shape("qwen3", 64, 96, 4, 2, 32, theta=1e6),
    "qwen3-q8_0": Shape("qwen3", 64, 96, 4, 2, 32, theta=1e6),
    "qwen3-q4_k_m": Shape("qwen3", 256, 256, 4, 1, 64, theta=1e6),
    "qwen3moe-f32": Shape("qwen3moe", 64, 32, 4, 2, 16, 8, 2, theta=1e6),
    "qwen3moe-q8_0": Shape("qwen3moe", 64, 32, 4, 2, 16, 8, 2, theta=1e6),
    "qwen3moe-q4_k_m": Shape("qwen3moe", 256, 256, 4, 2, 64, 4, 2, theta=1e6),
    "qwen3moe-low": Shape("qwen3moe", 256, 256, 4, 2, 64, 4, 2, theta=1e6),
    "qwen3moe-ik": Shape("qwen3moe", 256, 256, 4, 2, 64, 4, 2, theta=1e6),
    "gpt-oss-f32": Shape("gpt-oss", 64, 32, 4, 2, 32, 6, 2, layers=3, theta=150000.0, bias=True, window=9, rope=UNTRUNCATED),
    "gpt-oss-mxfp4": Shape("gpt-oss", 64, 32, 4, 2, 32, 6, 2, layers=3, theta=150000.0, bias=True, window=9, rope=UNTRUNCATED),
    "glm4moe-f32": Shape("glm4moe", 32, 16, 4, 2, 16, 8, 2, bias=True, shared=16, dense=1, rotary=8, qk_norm=True,
                         scale=2.5, groups=2, nextn=1),
    "glm4moe-q8_0": Shape("glm4moe", 64, 32, 4, 2, 32, 8, 2, bias=True, shared=32, dense=1, rotary=16,
                          scale=2.0, nextn=1),
    "glm4v-moe-f32": Shape("glm4moe", 32, 16, 4, 2, 16, 8, 2, bias=True, shared=16, dense=1, rotary=8, scale=1.5,
                           rope=dict(mrope_section=[1, 1, 2])),
    "hunyuan-moe-f32": Shape("hunyuan-moe", 32, 16, 4, 2, 16, 8, 2, tied=True, shared=16),
    "hunyuan-moe-q8_0": Shape("hunyuan-moe", 64, 32, 4, 2, 32, 8, 2, shared=32),
    "minimax-m2-f32": Shape("minimax-m2", 32, 16, 4, 2, 16, 8, 2, theta=5e6, rotary=8),
    "minimax-m2-q8_0": Shape("minimax-m2", 64, 32, 4, 2, 32, 8, 2, theta=5e6, rotary=16),
    "dots1-f32": Shape("dots1", 32, 16, 4, 4, 16, 8, 2, shared=32, dense=1, scale=2.5),
    "dots1-q8_0": Shape("dots1", 64, 32, 4, 4, 16, 8, 2, shared=64, dense=1, scale=2.5),
    "ernie4_5-moe-f32": Shape("ernie4_5-moe", 32, 16, 4, 2, 16, 8, 2, tied=True, theta=5e5, shared=32, dense=1),
    "ernie4_5-moe-q8_0": Shape("ernie4_5-moe", 64, 32, 4, 2, 16, 8, 2, theta=5e5, dense=1),
    "lfm2-f32": Shape("lfm2", 64, 96, 4, 2, 16, tied=True, layers=3, full=(1,), theta=1e6),
    "lfm2moe-f32": Shape("lfm2moe", 64, 32, 4, 2, 16, 8, 2, tied=True, dense=1, layers=3, full=(1,), theta=1e6),
    "qwen3next-f32": Shape("qwen3next", 64, 32, 4, 2, 16, 8, 2, shared=32, layers=3, full=(2,), theta=1e6),
    "qwen35-f32": Shape("qwen35", 64, 96, 4, 2, 16, tied=True, layers=3, full=(2,), theta=1e6),
    "qwen35moe-f32": Shape("qwen35moe", 64, 32, 4, 2, 16, 8, 2, shared=32, layers=3, full=(2,), theta=1e6),
    "lfm2-q8_0": Shape("lfm2", 64, 96, 4, 2, 16, tied=True, full=(1,), theta=1e6,
                      gain={"self_attn.out_proj": 1.3}),
    "lfm2moe-q8_0": Shape("lfm2moe", 64, 32, 4, 2, 16, 8, 2, tied=True, dense=1, full=(1,), theta=1e6,
                          gain={"down_proj": 2.4}),
    "qwen3next-q8_0": Shape("qwen3next", 64, 32, 4, 2, 16, 8, 2, shared=32, full=(1,), theta=1e6,
                            gain={"out_proj": 0.2, "o_proj": 1.3}),
    "qwen35-q8_0": Shape("qwen35", 64, 96, 4, 2, 16, tied=True, full=(1,), theta=1e6,
                         gain={"out_proj": 0.2, "o_proj": 1.3}),
    "qwen35moe-q8_0": Shape("qwen35moe", 64, 32, 4, 2, 16, 8, 2, shared=32, full=(1,), theta=1e6,
                            gain={"out_proj": 0.1, "o_proj": 1.4, "shared_expert.down_proj": 1.1}),
    "seed_oss-f32": Shape("seed_oss", 32, 64, 4, 2, 16, theta=1e7, bias=True),
    "seed_oss-q8_0": Shape("seed_oss", 64, 96, 4, 2, 32, tied=True, theta=1e7, bias=True),
    "smollm3-f32": Shape("smollm3", 32, 64, 4, 2, 8, tied=True, layers=5, theta=5e6),
    "smollm3-q8_0": Shape("smollm3", 64, 96, 4, 2, 16, layers=4, theta=5e6, gain={"q_proj": 0.7, "k_proj": 0.7}),
    "phi3-f32": Shape("phi3", 64, 64, 4, 2, 16, rotary=8, window=9,
                      rope=PHI3 | dict(original_max_position_embeddings=64)),
    "phi3-q8_0": Shape("phi3", 64, 96, 4, 2, 16, rotary=8, rope=PHI3 | dict(original_max_position_embeddings=4),
                       gain={"qkv_proj": 0.7}),
    "glm4-f32": Shape("glm4", 32, 64, 4, 2, 16, bias=True, rotary=8),
    "glm4v-f32": Shape("glm4", 64, 64, 4, 2, 16, bias=True, rotary=8, rope=dict(mrope_section=[1, 1, 2])),
    "glm4-q8_0": Shape("glm4", 64, 96, 4, 2, 16, rotary=8),
    "olmo2-f32": Shape("olmo2", 32, 64, 4, 2, 8, theta=5e5),
    "olmo3-q8_0": Shape("olmo2", 64, 96, 4, 2, 16, theta=5e5, window=9, period=2, rope=YARN),
    "exaone4-f32": Shape("exaone4", 64, 64, 4, 2, 16, theta=5e5, layers=3, window=9, period=2, rope=LLAMA3),
    "exaone4-q8_0": Shape("exaone4", 64, 96, 4, 2, 16, tied=True, theta=1e6),
    "bailingmoe2-f32": Shape("bailingmoe2", 32, 16, 4, 2, 16, 8, 2, theta=6e5, shared=16, dense=1, rotary=8, groups=2,
                             scale=2.5),
    "bailingmoe2-q8_0": Shape("bailingmoe2", 64, 32, 4, 2, 16, 8, 2, theta=6e5, shared=32, dense=1, rotary=8, groups=4,
                              scale=2.5),
    "exaone-moe-f32": Shape("exaone-moe", 32, 16, 4, 2, 16, 8, 2, theta=1e6, shared=16, dense=1, scale=2.5, layers=3,
                            window=9, period=2),
    "exaone-moe-q8_0": Shape("exaone-moe", 64, 32, 4, 2, 16, 8, 2, theta=1e6, shared=32, dense=1, scale=2.5, window=9,
                             period=2),
    "afmoe-f32": Shape("afmoe", 32, 16, 4, 2, 16, 8, 2, shared=16, dense=1, scale=2.826, window=9, period=2),
    "afmoe-q8_0": Shape("afmoe", 64, 32, 4, 2, 16, 8, 2, shared=32, dense=1, scale=2.826, window=9, period=2,
                        gain={"shared_experts.down_proj": 3.0}),
    "cohere2-f32": Shape("cohere2", 32, 64, 4, 2, 8, tied=True, layers=4, theta=5e4, window=9),
    "cohere2-q8_0": Shape("cohere2", 64, 96, 4, 2, 16, tied=True, theta=5e4, window=9),
    "cohere2moe-f32": Shape("cohere2moe", 32, 16, 4, 2, 8, 8, 2, tied=True, dense=1, layers=3, theta=5e4, window=9,
                            period=3),
    "cohere2moe-q8_0": Shape("cohere2moe", 64, 32, 4, 2, 16, 8, 2, dense=1, theta=5e4, window=9, period=2),
    "mistral3-f32": Shape("mistral3", 32, 64, 4, 2, 16, theta=1e6, rope=MINISTRAL),
    "mistral3-q8_0": Shape("mistral3", 64, 96, 4, 2, 32, tied=True, theta=1e6, rope=MINISTRAL, gain={"q_proj": 0.7, "k_proj": 0.7}),
    "llama4-f32": Shape("llama4", 32, 16, 4, 2, 16, 6, 1, layers=4, theta=500000.0, window=9, rope=LLAMA3),
    "llama4-q8_0": Shape("llama4", 32, 32, 4, 2, 16, 128, 1, theta=500000.0, window=9, period=2, step=2,
                         gain={"q_proj": 0.7, "k_proj": 0.7, "experts.down_proj": 1.8}),
    "laguna-f32": Shape("laguna", 32, 16, 4, 2, 16, 8, 2, theta=5e5, full_heads=2, shared=16, dense=1, rotary=8, scale=2.5,
                        layers=3, window=9, period=2, rope=YARN),
    "laguna-q8_0": Shape("laguna", 64, 32, 4, 2, 16, 8, 2, theta=5e5, full_heads=2, shared=32, dense=1, rotary=8,
                         scale=2.5, window=9, period=2, rope=YARN, element_gate=True, gain={"g_proj": 0.5}),
    "qwen2vl-f32": Shape("qwen2vl", 32, 64, 4, 2, 8, theta=1e6, bias=True),
    "qwen2vl-q8_0": Shape("qwen2vl", 64, 64, 4, 2, 16, tied=True, theta=1e6, bias=True),
    "qwen3vl-f32": Shape("qwen3vl", 32, 64, 4, 2, 16, theta=5e6),
    "qwen3vl-q8_0": Shape("qwen3vl", 64, 64, 4, 2, 32, tied=True, theta=5e6),
    "qwen3vlmoe-f32": Shape("qwen3vlmoe", 32, 16, 4, 2, 16, 8, 2, theta=5e6),
    "qwen3vlmoe-q8_0": Shape("qwen3vlmoe", 64, 32, 4, 2, 32, 8, 2, theta=5e6),
    "ernie4_5-f32": Shape("ernie4_5", 32, 64, 4, 1, 16, tied=True, theta=5e5),
    "ernie4_5-q8_0": Shape("ernie4_5", 64, 64, 4, 2, 16, theta=5e5),
    "hunyuan-dense-f32": Shape("hunyuan-dense", 32, 64, 4, 2, 16, tied=True),
    "hunyuan-dense-q8_0": Shape("hunyuan-dense", 64, 64, 4, 2, 32),
    "exaone-f32": Shape("exaone", 32, 64, 4, 2, 8, theta=1e6, rope=LLAMA3),
    "exaone-q8_0": Shape("exaone", 64, 64, 4, 2, 16, tied=True, theta=1e6),
    "internlm2-f32": Shape("internlm2", 32, 64, 4, 2, 8, theta=1e6),
    "internlm2-q8_0": Shape("internlm2", 64, 64, 4, 2, 16, theta=1e6, gain={"down_proj": 1.3}),
    "gemma-f32": Shape("gemma", 32, 64, 4, 1, 16, tied=True),
    "gemma-q8_0": Shape("gemma", 64, 64, 4, 4, 16, tied=True),
    "minicpm-f32": Shape("minicpm", 32, 64, 4, 4, 8, tied=True),
    "minicpm-q8_0": Shape("minicpm", 64, 64, 4, 2, 16),
    "mellum-f32": Shape("mellum", 32, 16, 4, 2, 16, 8, 2, theta=5e5, window=9, period=2, rope=YARN,
                        gain={"q_proj": 0.7, "k_proj": 0.7}),
    "mellum-q8_0": Shape("mellum", 64, 32, 4, 2, 16, 8, 2, theta=5e5, window=9, period=2, rope=YARN),
    "hy_v3-f32": Shape("hy_v3", 32, 16, 4, 2, 16, 8, 2, shared=16, dense=1, scale=2.826),
    "hy_v3-q8_0": Shape("hy_v3", 64, 32, 4, 2, 16, 8, 2, shared=32, dense=1, scale=2.826,
                         gain={"shared_experts.down_proj": 3.0}),
    "mimo2-f32": Shape("mimo2", 32, 16, 4, 2, 24, 8, 2, theta=5e6, dense=1, layers=3, window=9, period=2, rotary=8, value=16),
    "mimo2-q8_0": Shape("mimo2", 64, 32, 4, 2, 48, 8, 2, theta=5e6, dense=1, window=9, period=2, rotary=16, value=32),
    "minimax-m3-f32": Shape("minimax-m3", 32, 16, 4, 2, 16, 8, 2, theta=5e6, shared=16, dense=1, rotary=8, scale=2.0,
                            gain={"gate_up_proj": 4.0, "down_proj": 0.3}),
    "minimax-m3-q8_0": Shape("minimax-m3", 64, 32, 4, 2, 32, 8, 2, theta=5e6, shared=32, dense=1, rotary=16, scale=2.0),
    "step35-f32": Shape("step35", 32, 16, 6, 2, 16, 8, 2, theta=5e6, full_heads=4, shared=16, dense=1, scale=3.0, layers=3,
                        window=9, period=2, limits=((0, 0.3, 0), (0.6, 0, 0.4)), rope=LLAMA3),
    "step35-q8_0": Shape("step35", 64, 32, 6, 2, 32, 8, 2, theta=5e6, full_heads=4, shared=32, dense=1, scale=3.0,
                         window=9, period=2, limits=((0, 0.5), (1.0, 0.8)), rope=LLAMA3,
                         gain={"shared_experts.down_proj": 2.5, "experts.down_proj": 2.0}),
    "muse-glimmer-f32": Shape("muse-glimmer", 32, 64, 4, 2, 16, theta=5e5, layers=3, window=9, period=3),
    "muse-glimmer-q8_0": Shape("muse-glimmer", 64, 64, 4, 2, 16, theta=5e5, window=9, period=2),
    "odd-f32": Shape("qwen3moe", 32, 32, 6, 3, 48, 5, 3, theta=1e6),
    "odd-q8_0": Shape("qwen3moe", 32, 32, 6, 3, 48, 5, 3, theta=1e6),
    "odd-q4_k_m": Shape("qwen3moe", 256, 32, 6, 3, 48, 5, 3, theta=1e6),
}
