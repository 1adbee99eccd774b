"""vLLM's flags that set no option, up to 0.33: `engine/arg_utils.py` and `entrypoints/common/cli_args.py`."""

from planner.engines.dynamo_flags import OF_ALL_WORKERS, OF_VLLM_WORKERS
from planner.engines.flag_table import (
    COMPILED,
    FULL_PRECISION,
    NO_GPU,
    NO_TEXT,
    OFFLOADED,
    OTHER_KERNELS,
    WHOLE_ENCODER,
    FlagTable,
    Known,
    Unmodelled,
    flags,
)


def _compiled(keys: str) -> tuple[Known, ...]:
    """Return keys of the compilation config, by each of its names."""
    return flags(" ".join(f"{name}.{key}" for name in ("--compilation-config", "-O", "-cc") for key in keys.split()))


NO_EFFECT = flags("""
    --tokenizer= --tokenizer-mode= --tokenizer-revision= --trust-remote-code --seed= --hf-config-path= --revision=
    --code-revision= --allowed-local-media-path= --allowed-media-domains=* --allow-deprecated-quantization
    --enable-return-routed-experts --return-sampling-mask --max-logprobs= --logprobs-mode= --use-fp64-gumbel
    --enable-trace-replay --skip-tokenizer-init --enable-prompt-embeds --served-model-name=* --config-format=
    --hf-token= --pooler-config= --generation-config= --override-generation-config= --enable-sleep-mode
    --sleep-mode-backend= --sleep-mode-offload-cudagraph --sleep-preserve-parameter-names=* --enable-cumem-allocator
    --enable-nccl-comm-suspend --logits-processors=* --io-processor-plugin= --renderer-num-workers=
    --load-format= --download-dir= --safetensors-load-strategy= --safetensors-prefetch-num-threads=
    --safetensors-prefetch-block-size= --model-loader-extra-config= --ignore-patterns=* --use-tqdm-on-load
    --pt-load-map-location= --enable-mamba-cache-stochastic-rounding --mamba-cache-philox-rounds=
    --reasoning-parser= --reasoning-parser-plugin= --distributed-executor-backend= --master-addr= --master-port=
    --nnodes|-n= --node-rank|-r= --distributed-timeout-seconds= --cpu-distributed-timeout-seconds= --numa-bind
    --numa-bind-nodes=* --numa-bind-cpus=* --device-ids=* --data-parallel-rank|-dpn= --data-parallel-start-rank|-dpr=
    --data-parallel-size-local|-dpl= --data-parallel-address|-dpa= --data-parallel-rpc-port|-dpp=
    --data-parallel-backend|-dpb= --enable-ep-weight-filter --enable-shm-tensor-arena
    --disable-nccl-for-dp-synchronization --max-parallel-loading-workers= --ray-workers-use-nsight
    --worker-extension-cls= --enable-fault-tolerance --fault-tolerance-config= --prefix-caching-hash-algo=
    --enable-mm-embeds --media-io-kwargs= --mm-processor-kwargs=
    --mm-processor-cache-gb= --mm-processor-cache-type= --mm-hasher-algorithm= --mm-shm-cache-max-object-size-mb=
    --mm-encoder-attn-backend= --mm-encoder-attn-dtype= --mm-encoder-fp8-scale-path=
    --mm-encoder-fp8-scale-save-path= --mm-encoder-fp8-scale-save-margin= --interleave-mm-strings --skip-mm-profiling
    --video-pruning-rate= --video-pruning-method= --mm-tensor-ipc= --mm-processor-device= --mm-ipc-gpu-memory-gb=
    --mm-device-do-normalize --lora-target-modules=* --default-mm-loras= --max-lora-cls-labels=
    --enable-tower-connector-lora --logging-config= --log-level= --log-config-file= --show-hidden-metrics-for-version=
    --otlp-traces-endpoint= --collect-detailed-traces=* --per-request-spec-decode-metrics= --kv-cache-metrics
    --kv-cache-metrics-sample= --custom-histogram-buckets= --cudagraph-metrics --enable-layerwise-nvtx-tracing
    --enable-mfu-metrics --enable-logging-iteration-details --jit-monitor-mode= --jit-monitor-verbose
    --disable-chunked-mm-input --enable-flashinfer-autotune --watermark-config= --kv-events-config= --reasoning-config=
    --structured-outputs-config= --aux-output-config= --profiler-config= --watchdog-config= --weight-transfer-config=
    --disable-log-stats --aggregate-engine-logging --fail-on-environ-validation --shutdown-timeout=
    --enable-log-requests --headless --api-server-count|-asc= --grpc --lora-modules=* --chat-template=
    --chat-template-content-format= --trust-request-chat-template --trust-request-mm-kwargs
    --default-chat-template-kwargs= --reasoning-effort-map= --response-role= --return-tokens-as-token-ids
    --enable-auto-tool-choice --exclude-tools-when-tool-choice-none --tool-call-parser= --tool-parser-plugin=
    --tool-strict-level= --tool-server= --max-log-len= --enable-prompt-tokens-details --enable-per-request-metrics
    --enable-server-load-tracking --enable-force-include-usage --sse-keep-alive-interval=
    --enable-tokenizer-info-endpoint --enable-log-outputs --enable-log-deltas --cohere-is-reasoning-model
    --cohere-format= --anthropic-disabled-thinking-effort= --log-error-stack --tokens-only --enable-scale-out
    --fingerprint-mode= --fingerprint-value= --host= --port= --grpc-port= --data-parallel-supervisor-port=
    --dp-supervisor-probe-interval-s= --dp-supervisor-probe-timeout-s= --dp-supervisor-probe-failure-threshold= --uds=
    --uvicorn-log-level= --disable-uvicorn-access-log --disable-access-log-for-endpoints= --allow-credentials
    --allowed-origins=* --allowed-methods=* --allowed-headers=* --api-key=* --ssl-keyfile= --ssl-certfile=
    --ssl-ca-certs= --enable-ssl-refresh --ssl-cert-reqs= --ssl-ciphers= --root-path= --middleware=*
    --enable-request-id-headers --disable-fastapi-docs --h11-max-incomplete-event-size= --h11-max-header-count=
    --enable-offline-docs --enable-flash-late-interaction
    --speculative-config.draft-load-config= --speculative-config.revision= --speculative-config.code-revision=
    --speculative-config.prompt-lookup-max= --speculative-config.prompt-lookup-min=
    --eplb-config.log-balancedness --eplb-config.log-balancedness-interval=""") + _compiled("""
    cache-dir= debug-dump-path= compile-cache-save-format= cudagraph-num-of-warmups= cudagraph-copy-inputs""")

OLDER = flags("""
    --calculate-kv-scales --disable-frontend-multiprocessing --disable-log-requests
    --disable-logprobs-during-spec-decoding --disable-mm-preprocessor-cache
    --enable-prompt-adapter --enable-reasoning --eplb-log-balancedness --guided-decoding-backend=
    --guided-decoding-disable-additional-properties --guided-decoding-disable-any-whitespace
    --guided-decoding-disable-fallback --logits-processor-pattern= --lora-extra-vocab-size= --max-prompt-adapter-token=
    --max-prompt-adapters= --override-neuron-config= --override-pooler-config= --prompt-adapters=*
    --qlora-adapter-name-or-path= --quantization-param-path= --tokenizer-pool-extra-config= --tokenizer-pool-size=
    --tokenizer-pool-type= --typical-acceptance-sampler-posterior-alpha=
    --typical-acceptance-sampler-posterior-threshold= --spec-decoding-acceptance-method= --use-v2-block-manager
    --worker-use-ray --engine-use-ray --max-seq-len-to-capture=
    --speculative-disable-mqa-scorer --speculative-model-quantization= --multi-step-stream-outputs
    --compute-hash-for-prefix-caching --enable-bf16x3-router-gemm""")

_CONTEXT_PARALLEL = Unmodelled(
    effect="spreads the context of a sequence over GPUs in another way than --decode-context-parallel-size does",
    flags=flags("""--dcp-comm-backend=
        --dcp-q-replicate --dcp-kv-cache-interleave-size=1 --cp-kv-cache-interleave-size=1 --enable-hc-sp"""))

OTHER_CONFIG = "changes the model's config; give the changed config.json as --model"
UNMODELLED = (
    Unmodelled(effect=OFFLOADED, is_refused=True, flags=flags("""
        --cpu-offload-gb=0 --cpu-offload-params=* --offload-backend=auto --offload-group-size=0
        --offload-num-in-group=1 --offload-prefetch-step=1 --offload-params=*""")),
    Unmodelled(effect=FULL_PRECISION, is_refused=True, only=("float32", "float"), flags=flags("--dtype=auto")),
    Unmodelled(effect=NO_GPU, is_refused=True, only=("cpu", "tpu", "neuron"), flags=flags("--device=auto")),
    Unmodelled(effect=NO_TEXT, is_refused=True, flags=flags("--mm-encoder-only --diffusion-config|-dc=")),
    _CONTEXT_PARALLEL,
    Unmodelled(effect="limits the context to the sliding window", flags=flags("--disable-sliding-window")),
    Unmodelled(effect="changes the size of a KV block's content, so the KV cache holds another number of tokens",
               flags=flags("""--kv-cache-dtype-skip-layers=* --mamba-cache-dtype=auto --mamba-ssm-cache-dtype=auto
                   --mamba-block-size= --mamba-cache-mode= --enable-mamba-shared-prefix-checkpoint
                   --use-replayssm --replayssm-buffer-len= --lora-dtype=auto --fully-sharded-loras
                   --long-lora-scaling-factors= --enable-lora-bias""")),
    Unmodelled(effect="changes which prefixes are found again, and how long they are kept",
               flags=flags("--prefix-cache-retention-interval= --prefix-match-unit= --swa-bounded-replay")),
    Unmodelled(effect="computes fewer layers of a prompt: prompts are faster",
               flags=flags("--kv-sharing-fast-prefill")),
    Unmodelled(effect=OTHER_KERNELS, flags=flags("""
        --attention-backend= --attention-config|-ac= --mamba-backend= --mamba-ssu-algorithm= --linear-backend=auto
        --sparse-indexer-topk-backend= --gdn-prefill-backend= --kda-prefill-backend= --kda-decode-backend=
        --ir-op-priority= --monokernel --disable-cascade-attn --model-impl=auto --quantization-config=
        --enable-batch-sharded-sampling --override-attention-dtype= --specialize-active-lora
        --enable-mixed-moe-lora-format --enable-moe-shared-loras""")),
    Unmodelled(effect=WHOLE_ENCODER,
               flags=flags("--mm-encoder-tp-mode=weights --enable-multimodal-encoder-data-parallel")),
    Unmodelled(effect=COMPILED, flags=_compiled("""
        mode=3|vllm_compile|compilationmode.vllm_compile level=3 backend=inductor use-inductor=true
        use-inductor-graph-partition pass-config.eliminate-noops=true pass-config.enable-noop=true""")),
    Unmodelled(effect="splits a step into another number of parts, whose exchanges and computing overlap",
               flags=flags("--ubatch-size=0|1")),
    Unmodelled(effect="moves experts between GPUs as their load asks: expert layers take another time",
               flags=flags("""--eplb-config.use-async --eplb-config.window-size=1000 --eplb-config.step-interval=3000
                   --eplb-config.policy=default --eplb-config.communicator= --expert-placement-strategy=linear
                   --enable-elastic-ep --elastic-ep-max-dp-size= --eplb-step-interval=3000 --eplb-window-size=1000""")),
    Unmodelled(effect="runs attention and the other layers on different GPUs (AFD): steps take another time",
               flags=flags("--afd-config=")),
    Unmodelled(effect="changes how often ranks wait for each other", flags=flags("--dp-sync-interval=1")),
    Unmodelled(effect="leaves the choice of a rank to a load balancer outside; --router has its rule",
               flags=flags("""--data-parallel-hybrid-lb|-dph --data-parallel-external-lb|-dpe
                   --data-parallel-multi-port-external-lb|-dpm""")),
    Unmodelled(effect="runs a scheduler or a worker of your own; --policy my_policy.py:name replays one",
               flags=flags("--scheduler-cls= --worker-cls=auto --additional-config=")),
    Unmodelled(effect=OTHER_CONFIG,
               flags=flags("--hf-overrides= --model-class-overrides= --rope-scaling= --rope-theta=")),
    Unmodelled(effect="moves KV or embeddings in a way of its own",
               flags=flags("""
                   --kv-offloading-backend=native --ec-transfer-config= --ec-manager-config= --engram-config=""")),
    Unmodelled(effect="changes the sizes that CUDA graphs have", flags=flags("--cuda-graph-sizes=*")),
    Unmodelled(effect="changes the scheduler of vLLM V0, which is not replayed", flags=flags("""
        --num-scheduler-steps=1 --scheduler-delay-factor=0.0 --preemption-mode= --num-lookahead-slots=0
        --max-num-partial-prefills=1 --max-long-partial-prefills=1 --disable-async-output-proc""")),
    Unmodelled(effect="drafts tokens as vLLM V0 does; give --speculative-config", flags=flags("""
        --speculative-draft-tensor-parallel-size|-spec-draft-tp=
        --speculative-max-model-len= --speculative-disable-by-batch-size= --ngram-prompt-lookup-max=
        --ngram-prompt-lookup-min=""")),
    Unmodelled(effect="changes how many tokens are drafted, or the time that drafting takes", flags=flags("""
        --speculative-config.draft-tensor-parallel-size= --speculative-config.disable-by-batch-size=
        --speculative-config.max-model-len= --speculative-config.quantization=
        --speculative-config.rejection-sample-method=
        --speculative-config.disable-padded-drafter-batch= --speculative-config.parallel-drafting=
        --speculative-config.enforce-eager= --speculative-config.adaptive-verification
        --speculative-config.enable-adaptive-verification --speculative-config.suffix-decoding-max-tree-depth=
        --speculative-config.suffix-decoding-max-cached-requests= --speculative-config.suffix-decoding-max-spec-factor=
        --speculative-config.suffix-decoding-min-token-prob= --speculative-config.suffix-decoding-corpus-tokens=""")),
)

FLAGS = FlagTable(no_effect=NO_EFFECT, others=(*OLDER, *OF_ALL_WORKERS, *OF_VLLM_WORKERS), unmodelled=UNMODELLED)

VARIABLES = (
    Unmodelled(effect=OTHER_KERNELS, flags=flags("""
        VLLM_ATTENTION_BACKEND= VLLM_FLASH_ATTN_VERSION= VLLM_USE_DEEP_GEMM=1 VLLM_MOE_USE_DEEP_GEMM=1
        VLLM_USE_FLASHINFER_MOE_FP4=0 VLLM_USE_FLASHINFER_MOE_FP8=0 VLLM_USE_FLASHINFER_MOE_FP16=0
        VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8=0 VLLM_USE_FLASHINFER_MOE_MXFP4_BF16=0 VLLM_FLASHINFER_MOE_BACKEND=
        VLLM_USE_TRTLLM_ATTENTION= VLLM_ALLREDUCE_USE_SYMM_MEM=1 VLLM_USE_NCCL_SYMM_MEM=0 VLLM_DISABLED_KERNELS=
        VLLM_ROCM_USE_AITER=0 VLLM_ROCM_USE_AITER_MHA=1 VLLM_ROCM_USE_AITER_MOE=1 VLLM_MLA_DISABLE=0
        VLLM_BATCH_INVARIANT=0""")),
    Unmodelled(effect="chooses vLLM's engine V0, and V1 is replayed; --policy vllm-v0 replays V0's scheduler without "
                      "chunked prefill", flags=flags("VLLM_USE_V1=1")),
    Unmodelled(effect="names a file with LMCache's sizes; --kv-offloading-size has the size",
               flags=flags("LMCACHE_CONFIG_FILE=")),
    Unmodelled(effect="keeps KV on a disk (--kv-remote-size with --kv-remote-scope replica replays one) or in a store "
                      "that replicas share (fleet); both together are a fourth tier, which is not modelled",
               flags=flags("LMCACHE_LOCAL_DISK= LMCACHE_MAX_LOCAL_DISK_SIZE= LMCACHE_REMOTE_URL=")),
)
