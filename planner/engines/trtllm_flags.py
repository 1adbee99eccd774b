"""TensorRT-LLM's flags and keys that set no option: `commands/serve.py` and `llmapi/llm_args.py`."""

from planner.engines.dynamo_flags import OF_ALL_WORKERS, OF_TRTLLM_WORKERS
from planner.engines.flag_table import FULL_PRECISION, NO_TEXT, OTHER_KERNELS, FlagTable, Unmodelled, flags

NO_EFFECT = flags("""
    --tokenizer= --custom-tokenizer= --host= --port= --custom-module-dirs= --log-level= --gpus-per-node=
    --num-postprocess-workers=0 --trust-remote-code --revision= --tokenizer-revision= --reasoning-parser= --tool-parser=
    --metadata-server-config-file= --fail-fast-on-attention-window-too-large --otlp-traces-endpoint=
    --media-io-kwargs= --chat-template= --served-model-name= --disagg-cluster-uri= --enable-energy-metrics
    --tokenizer-mode=auto --skip-tokenizer-init --print-iter-log --enable-iter-perf-stats --enable-iter-req-stats
    --iter-stats-max-iterations= --request-stats-max-iterations= --return-perf-metrics --perf-metrics-max-requests=
    --postprocess-tokenizer-dir= --load-format=auto --checkpoint-format= --checkpoint-loader=
    --garbage-collection-gen0-threshold=
    --enable-autotuner --enable-layerwise-nvtx-marker --orchestrator-type= --env-overrides= --mpi-session=
    --peft-cache-config= --guided-decoding-backend= --batched-logits-processor= --kv-cache-config.event-buffer-max-size=
    --kv-cache-config.attention-dp-events-gather-period-ms= --kv-cache-config.cross-kv-cache-fraction=
    --kv-cache-config.enable-kv-cache-event-hash= --cuda-graph-config.enable-padding --gather-generation-logits
    --max-prompt-adapter-token= --enable-prompt-adapter --normalize-log-probs --allow-advanced-sampling --telemetry=
    --telemetry-config= --prometheus-metrics-config= --video-pruning-rate= --max-stats-len=
    --skip-loading-weights --tokenizer-kwargs= --speculative-model-kwargs= --draft-checkpoint-loader= --device=cuda
    --agent-types= --agent-percentage= --speculative-config.acceptance-rate-window-size=""")

UNMODELLED = (
    Unmodelled(effect=FULL_PRECISION, is_refused=True, only=("float32", "float"), flags=flags("--dtype=auto")),
    Unmodelled(effect="runs TensorRT engines, not the PyTorch backend, whose kernels and scheduler are modelled",
               is_refused=True, only=("tensorrt", "trt"), flags=flags("--backend=pytorch")),
    Unmodelled(effect="runs AutoDeploy, which divides and compiles the model by itself: the PyTorch backend's kernels "
                      "are predicted, with tensor parallelism over all GPUs", only=("_autodeploy",),
               flags=flags("--backend=pytorch")),
    Unmodelled(effect="changes how AutoDeploy divides or compiles the model", flags=flags("""
        --transforms= --mode=graph --model-factory=automodelforcausallm --yaml-extra=* --yaml-default=""")),
    Unmodelled(effect="runs AutoDeploy's scheduler for tests, which is not modelled", is_refused=True,
               only=("demollm",), flags=flags("--runtime=trtllm")),
    Unmodelled(effect=NO_TEXT, is_refused=True, flags=flags("--encode-only --mm-encoder-only")),
    Unmodelled(effect="spreads the context of a sequence over GPUs: a GPU holds less KV, and decodes send more",
               flags=flags("--context-parallel-size|--cp-size=1 --cp-config=")),
    Unmodelled(effect="decodes several beams of a request", flags=flags("--max-beam-width=1")),
    Unmodelled(effect=OTHER_KERNELS, flags=flags("""
        --attn-backend=trtllm --sparse-attention-config= --allreduce-strategy=auto --nvfp4-gemm-config=
        --use-cute-dsl-blockscaling-mm --use-cute-dsl-blockscaling-bmm --use-low-precision-moe-combine
        --force-dynamic-quantization --sampler-type=auto --enable-trtllm-sampler --disable-flashinfer-sampling
        --mm-encoder-only-config= --torch-compile-config.enable-fullgraph --torch-compile-config.enable-inductor
        --torch-compile-config.enable-userbuffers --torch-compile-config.max-num-streams=1
        --moe-config.disable-finalize-fusion --moe-config.use-low-precision-moe-combine --quant-config=
        --calib-config=""")),
    Unmodelled(effect="spreads experts over GPUs in another way, or limits their batch: expert layers take "
                      "another time", flags=flags("""
        --moe-config.max-num-tokens=
        --moe-cluster-parallel-size|--cluster-size=1""")),
    Unmodelled(effect="changes when prompts or decodes wait", flags=flags("""
        --attention-dp-config= --scheduler-config.dynamic-batch-config= --scheduler-config.waiting-queue-policy=fcfs
        --num-continuous-decode-steps=1 --max-input-len= --enable-min-latency --use-capacity-scheduler
        --kv-cache-config.sink-token-length=0 --kv-cache-config.use-uvm=false
        --kv-cache-config.max-util-for-resume=0.95""")),
    Unmodelled(effect="changes which prefixes are kept", flags=flags("""
        --kv-cache-config.enable-partial-reuse=true --kv-cache-config.copy-on-partial-reuse=true
        --kv-cache-config.secondary-offload-min-priority= --kv-cache-config.onboard-blocks=true""")),
    Unmodelled(effect="changes how the memory is divided, so the KV cache holds another number of tokens",
               flags=flags("""
        --kv-cache-config.max-attention-window= --kv-cache-config.max-gpu-total-bytes=
        --kv-cache-config.mamba-ssm-cache-dtype=auto --kv-cache-config.use-kv-cache-manager-v2=false
        --kv-cache-config.mamba-state-cache-interval= --max-lora-config=
        --layer-wise-benchmarks-config= --gpu-weights-percent=""")),
    Unmodelled(effect="keeps KV on a disk; --kv-remote-size with --kv-remote-scope replica replays one",
               flags=flags("--kv-cache-config.disk-cache-size=")),
    Unmodelled(effect="keeps KV in a store; --kv-offloading-size (host memory) and --kv-remote-size (a store that "
                      "replicas share, or with --kv-remote-scope replica a disk) replay one",
               flags=flags("--kv-connector-config=")),
    Unmodelled(effect="changes the size of steps that run as CUDA graphs", flags=flags("--use-cuda-graph")),
    Unmodelled(effect="changes the model's config; give the changed config.json as --model",
               flags=flags("--model-kwargs= --hf-overrides=")),
    Unmodelled(effect="changes options of the engine; write them into the file of --extra-engine-args",
               flags=flags("--override-engine-args=")),
    Unmodelled(effect="serves LoRA adapters; give --max-loras and --max-lora-rank",
               flags=flags("--enable-lora --lora-config=")),
    Unmodelled(effect="changes how many tokens are drafted, or the time that drafting takes", flags=flags("""
        --speculative-config.max-concurrency=
        --speculative-config.use-relaxed-acceptance-for-thinking --speculative-config.relaxed-topk=
        --speculative-config.relaxed-delta= --speculative-config.eagle-choices=
        --speculative-config.use-dynamic-tree --speculative-config.dynamic-tree-max-topk=
        --speculative-config.max-matching-ngram-size= --speculative-config.is-public-pool=
        --speculative-config.is-keep-all= --speculative-config.is-use-oldest= --speculative-config.use-mtp-vanilla
        --speculative-config.eagle3-one-model=true --speculative-config.acceptance-length-threshold=
        --speculative-config.mtp-eagle-one-model=true --speculative-config.use-rejection-sampling""")),
)

FLAGS = FlagTable(no_effect=NO_EFFECT, others=(*OF_ALL_WORKERS, *OF_TRTLLM_WORKERS), unmodelled=UNMODELLED)
