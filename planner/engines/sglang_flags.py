"""SGLang's flags that set no option, up to 0.5.23: `arg_groups/fields` and `server_args.py` in sglang/srt."""

from planner.engines.dynamo_flags import OF_ALL_WORKERS, OF_SGLANG_WORKERS
from planner.engines.flag_table import (
    FULL_PRECISION,
    NO_GPU,
    NO_TEXT,
    OFFLOADED,
    OTHER_KERNELS,
    WHOLE_ENCODER,
    FlagTable,
    Unmodelled,
    flags,
)

NO_EFFECT = flags("""
    --cp-strategy= --nsa-prefill-cp-mode= --dsa-prefill-cp-mode= --prefill-cp-mode=
    --base-gpu-id=0 --gpu-id-step=1 --random-seed= --mlx-enable-sampling --watchdog-timeout=300
    --soft-watchdog-timeout= --sleep-on-idle --use-ray --numa-node=* --gc-threshold=* --disaggregation-transfer-backend=
    --disaggregation-bootstrap-port= --disaggregation-ib-device= --disaggregation-enable-kv-checksum
    --encoder-transfer-backend=auto --encoder-urls=* --encoder-bootstrap-port=8997 --encoder-register-urls=*
    --enable-adaptive-dispatch-to-encoder --language-only --enable-fp32-lm-head
    --enable-memory-saver --enable-weights-cpu-backup --enable-draft-weights-cpu-backup
    --enable-custom-logit-processor --enable-watermark --watermark-config= --sampling-mask-max-tokens=4096
    --disable-outlines-disk-cache --grammar-backend= --disable-flashinfer-autotune --flashinfer-autotune-skip-ops=*
    --enable-precise-embedding-interpolation --enable-mamba-cache-stochastic-rounding --mamba-cache-philox-rounds=0
    --disable-cuda-graph-padding --enable-profile-cuda-graph --enable-cudagraph-gc --enable-layerwise-nvtx-marker
    --enable-torch-compile-debug-mode --pre-warm-nccl --expert-distribution-recorder-mode=
    --expert-distribution-recorder-buffer-size= --expert-balancedness-report-mode=off --mooncake-ib-device=
    --elastic-ep-scale-timeout=600 --lora-target-modules=* --lora-strict-loading --enable-multimodal
    --mm-attention-backend= --enable-broadcast-mm-inputs-process --enable-prefix-mm-cache
    --mm-process-config= --mm-processor-worker-num=0 --mm-io-worker-num=0 --allowed-media-domains=*
    --media-url-max-file-size-mb=64 --mm-preprocess-cache-size-mb= --trust-mm-content-hashes
    --limit-mm-data-per-request= --enable-mm-global-cache --image-processor-backend=auto
    --mm-global-cache-backend=mooncake --disable-fast-image-processor --mm-feature-transport= --load-format=auto
    --model-loader-extra-config={} --trust-remote-code --revision= --model-config-parser=auto
    --quantization-param-path= --modelopt-checkpoint-restore-path= --modelopt-checkpoint-save-path=
    --modelopt-export-path= --startup-weight-load-mode=serial --custom-weight-loader=* --weight-loader-disable-mmap
    --weight-loader-prefetch-checkpoints --weight-loader-prefetch-num-threads=4 --weight-loader-drop-cache-after-load
    --remote-instance-weight-loader-seed-instance-ip= --remote-instance-weight-loader-seed-instance-service-port=
    --remote-instance-weight-loader-send-weights-group-ports=* --remote-instance-weight-loader-backend=nccl
    --remote-instance-weight-loader-start-seed-via-transfer-engine --engine-info-bootstrap-port=6789
    --modelexpress-config= --download-dir= --model-checksum= --delete-ckpt-after-loading --decrypted-config-file=
    --decrypted-draft-config-file= --checkpoint-engine-wait-weights-before-ready --weight-cache-mode=off
    --weight-cache-socket= --weight-cache-timeout=1800 --log-level=info --log-level-http= --log-requests
    --log-requests-level=2 --log-requests-format=text --log-requests-target=*
    --uvicorn-access-log-exclude-prefixes=* --crash-dump-folder= --show-time-cost --enable-metrics
    --smg-http-sidecar-port|--grpc-http-sidecar-port= --enable-mfu-metrics --enable-metrics-for-all-schedulers
    --load-snapshot-publish-interval=15 --tokenizer-metrics-custom-labels-header=x-custom-labels
    --tokenizer-metrics-allowed-custom-labels=* --extra-metric-labels= --bucket-time-to-first-token=*
    --bucket-inter-token-latency=* --bucket-e2e-request-latency=* --prompt-tokens-buckets=*
    --generation-tokens-buckets=* --gc-warning-threshold-secs=0.0 --decode-log-interval=40
    --enable-request-time-stats-logging --kv-events-config= --load-publish-endpoint= --enable-forward-pass-metrics
    --forward-pass-metrics-worker-id= --forward-pass-metrics-ipc-name= --enable-trace --trace-modules=request
    --otlp-traces-endpoint=localhost:4317 --otlp-service-name= --export-metrics-to-file
    --export-metrics-to-file-dir= --debug-tensor-dump-output-folder= --debug-tensor-dump-layers=*
    --debug-tensor-dump-input-file= --msprobe-dump-config= --nccl-port= --dist-timeout=
    --dist-init-addr|--nccl-init-addr= --gated-launch-port= --nnodes=1 --node-rank=0
    --enable-dp-attention-local-control-broadcast --enable-p2p-check --default-priority-value=
    --abort-on-priority-when-disabled --c128-page-size=16 --prefill-delayer-forward-passes-buckets=*
    --prefill-delayer-wait-seconds-buckets=* --enable-response-store --tokenizer-path= --tokenizer-mode=auto
    --tokenizer-backend=huggingface --tokenizer-worker-num=1 --detokenizer-worker-num=1 --skip-tokenizer-init
    --host=127.0.0.1 --port=30000 --fastapi-root-path= --enable-http-worker-reuseport --smg-grpc-mode --grpc-mode
    --grpc-port= --grpc-response-timeout-secs=300 --sidecar= --sidecar-args=* --skip-server-warmup --warmups=
    --enable-http2 --http2-max-concurrent-streams=200 --http2-initial-connection-window-size= --ssl-keyfile=
    --ssl-certfile= --ssl-ca-certs= --ssl-keyfile-password= --enable-ssl-refresh --api-key= --admin-api-key=
    --served-model-name= --weight-version=default --chat-template= --trust-request-chat-template
    --hf-chat-template-name= --completion-template= --file-storage-path= --enable-cache-report --return-input-ids
    --return-output-ids --default-chat-template-kwargs= --enable-strict-thinking --tool-server=
    --sampling-defaults=model --asr-max-buffer-seconds=60 --asr-max-concurrent-sessions=32
    --preferred-sampling-params= --allow-auto-truncate --batch-notify-size=16 --stream-response-default-include-usage
    --incremental-streaming-output --enable-streaming-session --constrained-json-whitespace-pattern=
    --constrained-json-disable-any-whitespace --constrained-json-max-whitespace-cnt= --enable-dynamic-batch-tokenizer
    --dynamic-batch-tokenizer-batch-size=32 --dynamic-batch-tokenizer-batch-timeout=0.002
    --enable-tokenizer-batch-encode --disable-tokenizer-batch-decode --speculative-draft-model-revision=
    --speculative-draft-load-format= --spec-trace-dir= --sampling-backend= --reasoning-parser= --tool-call-parser=
    --hicache-io-backend=kernel --hicache-mem-layout=page_first --hicache-host-memory-fraction=0.8
    --enable-return-routed-experts --enable-return-indexer-topk --radix-cache-backend= --lmcache-config-file=
    --flexkv-config-file= --speculative-ngram-capacity= --speculative-ngram-external-corpus-max-tokens=10000000""")

OLDER = flags("""
    --stat-loggers=* --collect-tokens-histogram --cuda-graph-tc-compiler= --custom-sigquit-handler=
    --debug-tensor-dump-inject= --debug-tensor-dump-prefill-only --disable-hicache-numa-detect
    --enable-expert-distribution-metrics --enable-nan-detection --keep-mm-feature-on-device
    --mm-max-concurrent-calls= --mm-per-request-timeout= --stream-output --load-watch-interval=
    --piecewise-cuda-graph-compiler= --multi-item-scoring-delimiter= --pdlb-url= --uses-mamba-radix-cache""")

OTHER_CONFIG = "changes the model or its weights; give the changed config.json as --model, or --quantization"
UNMODELLED = (
    Unmodelled(effect=WHOLE_ENCODER, flags=flags("--mm-enable-dp-encoder")),
    Unmodelled(effect="deals requests to the replicas; --router has the rule", flags=flags("--router-policy=")),
    Unmodelled(effect=OFFLOADED, is_refused=True, flags=flags("""
        --cpu-offload-gb=0 --offload-group-size=-1 --offload-num-in-group=1 --offload-prefetch-step=1 --offload-mode=cpu
        --enable-paged-experts --paged-experts-num-resident= --kt-weight-path= --kt-method=amxint4 --kt-cpuinfer=
        --kt-threadpool-count=2 --kt-num-gpu-experts= --kt-max-deferred-experts-per-token= --kt-amx-method=amxint4
        --kt-amx-weight-path=""")),
    Unmodelled(effect=FULL_PRECISION, is_refused=True, only=("float32", "float"), flags=flags("--dtype=auto")),
    Unmodelled(effect=NO_GPU, is_refused=True, only=("cpu", "npu", "mps"), flags=flags("--device=")),
    Unmodelled(effect=NO_TEXT, is_refused=True, flags=flags("""
        --encoder-only --enable-mis --prefill-only-disable-kv-cache --dllm-algorithm=
        --dllm-algorithm-config= --dllm-fdfo""")),
    Unmodelled(effect="drafts tokens in an engine of its own", is_refused=True, flags=flags("""
        --decoupled-spec-role=null --decoupled-spec-rank= --decoupled-spec-bind-endpoint=
        --decoupled-spec-connect-endpoints=*""")),
    Unmodelled(effect="runs prompts and decodes side by side on parts of each GPU",
               flags=flags("--enable-pdmux --pdmux-config-path= --sm-group-num=8")),
    Unmodelled(effect="changes how prefill and decode pass requests on", flags=flags("""
        --disaggregation-decode-allocation-policy=early --disaggregation-decode-enable-radix-cache
        --disaggregation-decode-enable-offload-kvcache --disaggregation-decode-retraction-backup=
        --num-reserved-decode-tokens=512 --disaggregation-decode-extra-slots= --disaggregation-decode-polling-interval=1
        --disaggregation-decode-host-receive-threshold=1.0 --enable-pd-role-switch --optimistic-prefill-attempts=0
        --optimistic-prefill-retries= --disaggregation-decode-dp= --disaggregation-decode-tp=
        --disaggregation-prefill-pp= --prefill-round-robin-balance""")),
    Unmodelled(effect=OTHER_KERNELS, flags=flags("""
        --attention-backend= --decode-attention-backend= --prefill-attention-backend= --enable-lean-attention
        --enable-nvidia-megakernel --enable-amd-monokernel --monokernel-backend= --prefill-kv-cache-dequant-dtype=auto
        --fp4-gemm-backend|--fp4-gemm-runner-backend=auto --bf16-gemm-backend=auto
        --dsa-prefill-backend|--nsa-prefill-backend= --dsv4-prefill-backend=auto --dsa-triton-union=0
        --dsa-decode-backend|--nsa-decode-backend= --dsv4-attn-backend=auto --dsa-paged-mqa-logits-backend=auto
        --dsa-topk-backend=sgl-kernel --triton-attention-reduce-in-fp32 --triton-attention-num-kv-splits=8
        --triton-attention-split-tile-size= --flashinfer-mla-disable-ragged --enable-fused-qk-norm-rope
        --enable-deepseek-v4-fp4-indexer --qsa-indexer-dtype=auto --enable-dsa-fused-indexer --mamba-backend=triton
        --linear-attn-backend=triton --linear-attn-decode-backend= --linear-attn-prefill-backend=
        --linear-attn-verify-backend= --enable-tf32-matmul --enable-torch-compile --torch-compile-max-bs=32
        --model-impl=auto --enable-deterministic-inference --rl-on-policy-target= --disable-chunked-prefix-cache
        --deepep-config= --deepep-v2-mode=direct --deepep-dispatcher-output-dtype=auto
        --fuseep-mode=2 --flashinfer-a2a-dispatch-type= --flashinfer-mxfp4-moe-precision=default
        --enable-w4a4-mxfp4-megamoe --disable-flashinfer-cutlass-moe-fp4-allgather --disable-shared-experts-fusion
        --enforce-shared-experts-fusion --enable-waterfill|--enable-deepep-waterfill --enable-fused-moe-sum-all-reduce
        --lora-backend=csgmv --max-lora-chunk-size=16 --experts-shared-outer-loras --lora-use-virtual-experts
        --enable-flashinfer-mla --enable-flashmla --enable-flashinfer-cutlass-moe --enable-flashinfer-mxfp4-moe
        --enable-flashinfer-trtllm-moe --enable-triton-kernel-moe --n-share-experts-fusion= --torchao-config=
        --enable-double-sparsity --ds-channel-config-path= --ds-heavy-channel-num= --ds-heavy-channel-type=
        --ds-heavy-token-num= --ds-sparse-decode-threshold= --forward-hooks=* --kv-canary=none
        --kv-canary-sweep-interval=0 --kv-canary-real-data=none --enable-return-hidden-states
        --return-hidden-states-mode= --enable-return-aux-hidden-states --return-aux-hidden-state-layer-ids=*""")),
    Unmodelled(effect="changes the time that GPUs need to add up or to exchange their results", flags=flags("""
        --enable-nccl-nvls --enable-symm-mem --enable-mscclpp --enable-torch-symm-mem
        --enable-scattered-sconv --boundary-reduction=auto --enable-quant-communications
        --enable-aiter-allreduce-fusion --disable-aiter-allreduce-fusion-in-prefill
        --disable-aiter-allreduce-fusion-in-decode --enable-dp-lm-head --enable-tp-lm-head-all-to-all
        --enable-attn-tp-input-scattered --enable-shared-experts-attn-tp --shared-experts-tp-size=
        --enable-dense-mlp-attn-tp --enable-layernorm-sp --enable-megamoe-for-layernorm-sp --disable-attn-tp-gather
        --moe-dense-tp-size= --moe-dp-size|--moe-data-parallel-size=1 --dwdp-size=1""")),
    Unmodelled(effect="spreads the context of a sequence over GPUs: a GPU holds less KV, and decodes send more",
               flags=flags("""
        --dcp-comm-backend= --dcp-replicate-q-proj --enable-dsa-cache-layer-split --enable-cp-decode-attn-tp
        --enable-kv-cache-sharding""")),
    Unmodelled(effect="changes how unequal the halves of two-batch overlap may be before a prompt is split",
               flags=flags("--tbo-token-distribution-threshold=0.48")),
    Unmodelled(effect="moves experts between GPUs as their load asks: expert layers take another time", flags=flags("""
        --ep-dispatch-algorithm=
        --eplb-algorithm=auto --eplb-rebalance-num-iterations=1000 --eplb-rebalance-layers-per-chunk=
        --eplb-min-rebalancing-utilization-threshold=1.0 --elastic-ep-backend= --enable-elastic-expert-backup
        --elastic-ep-join-mode|--ep-join-mode= --elastic-ep-join-rank-offset|--ep-join-rank-offset=0
        --elastic-ep-initial-size= --max-ep-size= --elastic-ep-rejoin""")),
    Unmodelled(effect="changes which graphs are captured: more or fewer steps run outside CUDA graphs", flags=flags("""
        --cuda-graph-config= --cuda-graph-backend-prefill= --cuda-graph-max-bs-prefill=
        --cuda-graph-max-seq-len-prefill= --cuda-graph-bs-prefill=*
        --cuda-graph-prefill-max-context|--context-bucket= --disable-prefill-cuda-graph --debug-cuda-graph
        --enable-piecewise-cuda-graph --disable-piecewise-cuda-graph --enforce-piecewise-cuda-graph
        --piecewise-cuda-graph-tokens=* --piecewise-cuda-graph-max-tokens= --enable-breakable-cuda-graph""")),
    Unmodelled(effect="changes the order of requests, or when prompts or decodes wait", flags=flags("""
        --prefill-decode-interval-min-bs=0 --enable-dynamic-chunking --prefill-max-requests=
        --disable-priority-preemption --retraction-policy=length --num-continuous-decode-steps=1
        --enable-prefill-delayer --prefill-delayer-max-delay-passes=30 --prefill-delayer-token-usage-low-watermark=
        --prefill-delayer-queue-min-ratio= --prefill-delayer-max-delay-ms= --min-free-slots-delay=
        --pp-max-micro-batch-size|--max-micro-batch-size= --pp-async-batch-depth=0 --load-balance-method=auto
        --lora-eviction-policy=lru --lora-drain-wait-threshold=0.0 --enable-lora-overlap-loading
        --disable-overlap-cg-plan""")),
    Unmodelled(effect="changes how the memory is divided between the pools of layers, so the KV cache holds another "
                      "number of tokens", flags=flags("""
        --swa-prefix-tails= --hybrid-kvcache-ratio= --max-mamba-cache-size= --mamba-ssm-dtype=
        --mamba-max-states-per-path=-1
        --mamba-radix-cache-strategy|--mamba-scheduler-strategy=auto --mamba-track-interval=256
        --enable-int8-mamba-checkpoint --int8-mamba-ckpt-size= --enable-linear-replayssm --linear-replayssm-cache-len=16
        --enable-linear-replayssm-spec --enable-gdn-replayssm-spec --enable-page-major-kv-layout
        --enable-unified-memory --enable-hisparse --hisparse-config|--hierarchical-sparse-attention-extra-config=
        --enable-encoder-swa-bounded-replay --enable-decoder-swa-bounded-replay --ple-offload-embedding
        --ple-offload-backend=pinned --ple-offload-dir=""")),
    Unmodelled(effect="changes which prefixes are kept, and where", flags=flags("""
        --radix-eviction-policy=lru --radix-eviction-policy-config= --enable-session-radix-cache
        --strip-thinking-cache --hicache-host-memory-mode=cache --hicache-storage-prefetch-policy=timeout
        --hicache-storage-backend-extra-config= --hicache-storage-prefetch-retry-poll-interval=8
        --hicache-storage-prefetch-retry-max-attempts=8 --enable-unified-cache-external-linker
        --unified-cache-external-linker-backend=mooncake --unified-cache-external-linker-config=
        --enable-linker-mla-dedup""")),
    Unmodelled(effect="keeps KV in a store; --kv-offloading-size (host memory) and --kv-remote-size (a store that "
                      "replicas share, or with --kv-remote-scope replica a disk) replay one", flags=flags("""
        --hicache-storage-backend= --enable-lmcache --enable-flexkv""")),
    Unmodelled(effect=OTHER_CONFIG,
               flags=flags("""
        --json-model-override-args={} --modelopt-quant= --quantize-and-serve --rl-quant-profile=""")),
    Unmodelled(effect="changes how many tokens are drafted and accepted, or the time that drafting takes",
               flags=flags("""
        --speculative-eagle-topk=1 --speculative-domino-candidate-pool-size=2048
        --speculative-dspark-sps-table-path= --speculative-dspark-confidence-sts-path=
        --speculative-dspark-align-verify-tokens-to-graph-tier --speculative-accept-threshold-single=1.0
        --speculative-accept-threshold-acc=1.0 --speculative-use-rejection-sampling
        --speculative-use-block-verification --speculative-token-map= --speculative-attention-mode=prefill
        --speculative-draft-attention-backend= --speculative-dsa-topk-backend=sgl-kernel
        --speculative-draft-kv-cache-dtype= --speculative-draft-window-size|--speculative-dflash-draft-window-size=
        --speculative-draft-sink-size= --speculative-moe-runner-backend= --speculative-moe-a2a-backend=
        --speculative-enable-w4a4-mxfp4-megamoe --speculative-draft-model-quantization= --enable-multi-layer-eagle
        --speculative-adaptive --speculative-adaptive-config= --speculative-ngram-min-bfs-breadth=1
        --speculative-ngram-max-bfs-breadth=10 --speculative-ngram-match-type=bfs
        --speculative-ngram-max-trie-depth=18 --speculative-ngram-external-corpus-path=
        --speculative-ngram-external-sam-budget=0 --uno-lora-path= --speculative-ngram-branch-length=
        --speculative-ngram-min-match-window-size= --speculative-ngram-max-match-window-size=
        --speculative-skip-dp-mlp-sync""")),
)

FLAGS = FlagTable(no_effect=NO_EFFECT, others=(*OLDER, *OF_ALL_WORKERS, *OF_SGLANG_WORKERS), unmodelled=UNMODELLED)

VARIABLES = (
    Unmodelled(effect="changes the bytes that are sent to experts: exchanges take another time",
               flags=flags("SGLANG_DEEPEP_BF16_DISPATCH=0")),
)
