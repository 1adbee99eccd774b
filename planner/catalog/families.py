"""Model types of Hugging Face: their names for the same fields, their classes' defaults, and their layers."""

from planner.catalog.pooling import ENCODERS

_EXPERTS = {  # keys of the number of experts and of one expert's width -> model types
    ("num_local_experts", "intermediate_size"): (
        "mixtral", "minimax_m2", "minimax_m3", "gpt_oss", "llama4_text", "phimoe", "granitemoe", "granitemoeshared",
        "granitemoehybrid", "granitemoe_swa", "dbrx"),
    ("num_local_experts", "moe_intermediate_size"): ("kolibri1", "muse_spark_text"),
    ("num_experts", "intermediate_size"): (
        "olmoe", "flex_olmo", "cohere2_moe", "hunyuan_v1_moe", "jamba", "aria_text"),
    ("num_experts", "moe_intermediate_size"): (
        "qwen2_moe", "qwen3_moe", "qwen3_next", "qwen3_5_moe_text", "ernie4_5_moe", "bailing_moe", "bailing_moe_v2",
        "hy_v3", "exaone_moe", "afmoe", "gemma4_text", "k2_horizon", "laguna", "kimi_linear", "lfm2_moe", "mellum",
        "sarvam_moe", "sarvam_mla", "flint", "beam", "param2moe"),
    ("n_routed_experts", "moe_intermediate_size"): (
        "deepseek", "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa",
        "dots1", "solar_open", "mistral4", "axk1", "mimo_v2_flash", "step3p5", "nemotron_h", "deepseek_v4",
        "longcat_flash", "hy_v4", "glm5_next_text"),
}
MOE_KEYS = {model_type: keys for keys, model_types in _EXPERTS.items() for model_type in model_types}
EXPERT_COUNTS = tuple(dict.fromkeys(count for count, _ in _EXPERTS))  # one for another, as Transformers 5 saves them
_QWEN = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
DELTA_NET = (*_QWEN, "olmo_hybrid")  # gated delta net in most layers
KDA = ("kimi_linear", "glm5_next_text")  # Kimi delta attention in most layers
MAMBA = ("nemotron_h", "granitemoehybrid", "bamba", "falcon_h1")  # Mamba-2 in most layers
SIDE_BY_SIDE = ("falcon_h1",)  # attention and Mamba-2 in every layer
MAMBA_1 = ("jamba",)  # Mamba in most layers
SHORT_CONV = ("lfm2", "lfm2_moe", "lfm3")  # gated short convolutions in most layers
BLOCK_SPARSE = ("minimax_m3",)  # MiniMax sparse attention
SPARSE = ("deepseek_v32", "glm_moe_dsa", "hy_v4", "glm5_next_text")  # DeepSeek sparse attention
WITHOUT_ROPE = ("glm5_next_text",)  # latent attention whose keys have no rotary part
COMPRESSED = ("deepseek_v4",)  # compressed sparse attention
# MLPs four times as wide as the hidden state, if no width is given.
FOUR_FOLD = ("bloom", "falcon", "gptj", "gpt_bigcode", "gpt2")
MULTI_QUERY = ("falcon", "gpt_bigcode")  # one head for keys, unless the config says otherwise
# MLPs of two matrices.
UNGATED = (*FOUR_FOLD, "gpt_neox", "nemotron_h", "phi", "arcee", "nemotron", "starcoder2", "apertus", "opt", "bert",
           "roberta", "xlm-roberta")
SUPPORTED = tuple(dict.fromkeys((  # each once
    "llama", "mistral", "ministral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "qwen3_5_text",
    "granite", "smollm3", "seed_oss", "cohere", "cohere2", "olmo", "olmo2", "olmo3", "exaone", "exaone4", "glm", "glm4",
    "ernie4_5", "hunyuan_v1_dense", "internlm3", "stablelm", "mimo", "nemotron-nas", "internlm2", "minicpm", "minicpm3",
    "youtu", "cwm", "helium", "iquestcoder", "hyperclovax", "granite_swa", "baichuan", "chatglm", "gemma3n_text",
    "muse_glimmer_text", "spark2_5",
    *MAMBA, *DELTA_NET, *SHORT_CONV, *UNGATED, *ENCODERS, *MOE_KEYS)))

INNER = ("thinker_config", "text_config", "llm_config", "language_config", "language_model_config")  # of a wrapper
WRAPPERS = {"gemma3": "gemma3_text", "gemma4": "gemma4_text", "gemma4_unified": "gemma4_text",
            "gemma4_unified_text": "gemma4_text", "step3p7": "step3p5", "mimo_v2": "mimo_v2_flash",
            "exaone4_5_text": "exaone4", "minimax_m3_vl": "minimax_m3", "deepseek_ref": "deepseek_v4",
            "llama4": "llama4_text", "kimi_k25": "kimi_k2", "kimi_k3": "kimi_linear", "mistral3": "mistral",
            "ministral3": "mistral", "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text",
            "qwen2_vl": "qwen2", "qwen2_vl_text": "qwen2", "qwen2_5_vl": "qwen2", "qwen2_5_vl_text": "qwen2",
            "qwen2_5_omni_text": "qwen2", "qwen3_omni_moe_text": "qwen3_moe",
            "qwen3_vl_text": "qwen3", "qwen3_vl_moe_text": "qwen3_moe", "glm4v_text": "glm4",
            "glm4v_moe_text": "glm4_moe", "gemma3n": "gemma3n_text", "minimax_m3_vl_text": "minimax_m3",
            "minicpmv": "qwen2", "minicpmo": "qwen2", "phi4mm": "phi3", "phi4_multimodal": "phi3",
            "hunyuan_vl_text": "hunyuan_v1_dense", "internlm": "llama", "xverse": "llama", "aquila": "llama",
            "orion": "llama", "telechat3": "llama", "solar": "llama", "phi3_v": "phi3", "glm_ocr_text": "glm4",
            "granite4_vision_text": "granite", "paddleocr_vl_text": "ernie4_5", "molmo2_text": "qwen3",
            "vaultgemma": "gemma2", "jais2": "arcee", "cosmos3_edge_text": "arcee", "persimmon": "arcee",
            "cohere_compass_text": "cohere2", "gte": "new", "ernie": "bert", "jina_embeddings_v3": "xlm-roberta"}
NESTED = {"dbrx": ("attn_config", "ffn_config")}  # tables of the language model's keys, which are named with a dot

_MAMBA_2 = {"mamba_n_groups": "linear_num_key_heads", "mamba_d_state": "linear_key_head_dim",
            "mamba_n_heads": "linear_num_value_heads", "mamba_d_head": "linear_value_head_dim",
            "mamba_d_conv": "linear_conv_kernel_dim"}
_LFM = {"tie_embedding": "tie_word_embeddings", "conv_L_cache": "linear_conv_kernel_dim"}
_KDA_HEADS = {"linear_num_heads": "linear_num_key_heads", "linear_head_dim": "linear_key_head_dim"}
_SHARED = {"shared_intermediate_size": "shared_expert_intermediate_size"}
_ONE_SHARED = {"num_shared_experts": "n_shared_experts"}
_BAILING = {**_ONE_SHARED, "moe_shared_expert_intermediate_size": "shared_expert_intermediate_size"}
_GPT = {"n_embd": "hidden_size", "n_embed": "hidden_size", "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads", "n_positions": "max_position_embeddings", "n_inner": "intermediate_size"}
RENAMED = {  # model_type -> its names of keys that others name otherwise
    **dict.fromkeys(("gptj", "gpt_bigcode", "gpt2", "nomic_bert"), _GPT),
    **dict.fromkeys(("bamba", "falcon_h1"), _MAMBA_2),
    "lfm2": {**_LFM, "block_ff_dim": "intermediate_size"}, "lfm3": _LFM,
    "lfm2_moe": {**_LFM, "num_dense_layers": "first_k_dense_replace"},
    "jamba": {"mamba_d_conv": "linear_conv_kernel_dim"},
    "longcat_flash": {"num_layers": "num_hidden_layers", "ffn_hidden_size": "intermediate_size",
                      "expert_ffn_hidden_size": "moe_intermediate_size", "moe_topk": "num_experts_per_tok"},
    "glm5_next_text": {**_KDA_HEADS, "head_dim": "rotary_head_dim"},
    "opt": {"ffn_dim": "intermediate_size"}, "baichuan": {"model_max_length": "max_position_embeddings"},
    "chatglm": {"num_layers": "num_hidden_layers", "padded_vocab_size": "vocab_size",
                "ffn_hidden_size": "intermediate_size", "multi_query_group_num": "num_key_value_heads",
                "kv_channels": "head_dim", "seq_length": "max_position_embeddings"},
    "bloom": {**_GPT, "seq_length": "max_position_embeddings"},
    "falcon": {"num_kv_heads": "num_key_value_heads", "ffn_hidden_size": "intermediate_size"},
    "ernie4_5_moe": {"moe_num_experts": "num_experts", "moe_k": "num_experts_per_tok",
                     "moe_num_shared_experts": "n_shared_experts", "moe_layer_start_index": "first_k_dense_replace",
                     "moe_layer_interval": "moe_layer_freq"},
    "exaone": {"num_layers": "num_hidden_layers"},
    "hunyuan_v1_moe": {"moe_topk": "num_experts_per_tok", "num_shared_expert": "n_shared_experts"},
    "gemma4_text": {"top_k_experts": "num_experts_per_tok"},
    "mimo_v2_flash": {"sliding_window_size": "sliding_window"},
    "step3p5": {"num_attention_groups": "num_key_value_heads", "moe_num_experts": "n_routed_experts",
                "moe_top_k": "num_experts_per_tok", "share_expert_dim": "shared_expert_intermediate_size"},
    "kimi_linear": {**_ONE_SHARED, **_KDA_HEADS, "num_experts_per_token": "num_experts_per_tok",
                    "routed_expert_hidden_size": "moe_latent_size", "mla_use_output_gate": "attn_output_gate",
                    "model_max_length": "max_position_embeddings"},
    "nemotron_h": {"n_groups": "linear_num_key_heads", "ssm_state_size": "linear_key_head_dim",
                   "mamba_num_heads": "linear_num_value_heads", "mamba_head_dim": "linear_value_head_dim",
                   "conv_kernel": "linear_conv_kernel_dim", "mamba_ssm_cache_dtype": "mamba_ssm_dtype",
                   "moe_shared_expert_intermediate_size": "shared_expert_intermediate_size"},
    "granitemoehybrid": {**_MAMBA_2, **_SHARED}, "granitemoeshared": _SHARED, "granitemoe_swa": _SHARED,
    "aria_text": {"moe_num_experts": "num_experts", "moe_topk": "num_experts_per_tok",
                  "moe_num_shared_experts": "n_shared_experts"},
    "muse_spark_text": {"moe_hidden_size": "moe_latent_size"},
    "afmoe": {**_ONE_SHARED, "num_dense_layers": "first_k_dense_replace",
              "global_attn_every_n_layers": "sliding_window_pattern"},
    "dbrx": {"d_model": "hidden_size", "n_heads": "num_attention_heads", "n_layers": "num_hidden_layers",
             "max_seq_len": "max_position_embeddings", "attn_config.kv_n_heads": "num_key_value_heads",
             "ffn_config.ffn_hidden_size": "intermediate_size", "ffn_config.moe_num_experts": "num_local_experts",
             "ffn_config.moe_top_k": "num_experts_per_tok"},
    **dict.fromkeys(("bailing_moe", "bailing_moe_v2", "sarvam_moe", "sarvam_mla", "param2moe"), _BAILING),
    **dict.fromkeys(("hy_v3", "exaone_moe", "cohere2_moe", "k2_horizon"), _ONE_SHARED),
}
SHARED_CACHES = ("gemma3n_text", "gemma4_text")  # whose last layers may read an earlier layer's cache
BESIDE_MLP = ("llama4_text", "gemma4_text")  # experts beside an MLP that all tokens go through, of intermediate_size
DENSE_WIDTH = {"llama4_text": "intermediate_size_mlp", "granitemoehybrid": "shared_expert_intermediate_size",
               "cohere2_moe": "prefix_dense_intermediate_size", "minimax_m3": "dense_intermediate_size"}
# The last of this number of layers sees all tokens, if the config does not list its layers.
SLIDING_PATTERN = {"gemma3_text": 6, "gemma3n_text": 5, "gemma4_text": 6, "llama4_text": 4, "cohere2": 4,
                   "cohere2_moe": 4, "exaone_moe": 4, "afmoe": 4, "spark2_5": 4}

_FILLED: tuple[tuple[dict[str, object], tuple[str, ...]], ...] = (  # defaults of Hugging Face's config classes
    ({"tie_word_embeddings": True}, ("gemma", "gemma2", "gemma3_text", "gemma4_text", "cohere", "cohere2",
                                     "cohere2_moe", "starcoder2", "ernie4_5", "bloom", "falcon", "gpt_bigcode", "gpt2",
                                     "opt", "gemma3n_text", "minicpm", "minicpm3", "youtu", "granite_swa",
                                     *SHORT_CONV, *ENCODERS)),
    ({"local_attention": 128, "global_attn_every_n_layers": 3}, ("modernbert",)),
    ({"max_position_embeddings": 2048}, ("bloom", "falcon")),
    ({"vocab_size": 262208, "max_position_embeddings": 131072, "num_attention_heads": 8, "num_key_value_heads": 4,
      "head_dim": 256, "sliding_window": 4096}, ("gemma3_text",)),
    ({"vocab_size": 262400, "max_position_embeddings": 32768, "num_attention_heads": 8, "num_key_value_heads": 2,
      "head_dim": 256, "sliding_window": 512, "hidden_size_per_layer_input": 256}, ("gemma3n_text",)),
    ({"v_head_dim": 64}, ("minicpm3",)),
    ({"block_auto_adjust_ff_dim": True, "block_multiple_of": 256}, ("lfm2",)),
    ({"qk_norm_type": "per_layer"}, ("minimax_m2", "olmo2", "olmo3", "olmoe", "flex_olmo", "olmo_hybrid")),
    ({"num_experts_per_tok": 8, "num_experts": 64}, ("olmoe",)),
    ({"first_k_dense_replace": 1}, ("hy_v3", "hy_v4", "axk1", "exaone_moe", "afmoe", "mimo_v2_flash")),
    ({"first_k_dense_replace": 3}, ("step3p5", "glm5_next_text")),
    ({"enable_moe_block": False}, ("gemma4_text",)),
    ({"n_shared_experts": 1}, ("hunyuan_v1_moe",)),
    ({"n_shared_experts": 1, "first_k_dense_replace": 1}, ("sarvam_moe", "sarvam_mla")),
    ({"attn_output_gate": True}, ("afmoe", "lfm3", "muse_glimmer_text", "muse_spark_text", "beam", *_QWEN)),
    ({"add_full_attention_sink_bias": True, "add_swa_attention_sink_bias": True}, ("flint",)),
    ({"first_k_dense_replace": 2}, ("lfm2_moe",)),
)
CLASS_DEFAULTS = {model_type: {key: value for keys, model_types in _FILLED if model_type in model_types
                               for key, value in keys.items()}
                  for model_type in SUPPORTED}
