"""Flags that NVIDIA Dynamo's workers add to their engine's; none has an effect on a prediction."""

from planner.engines.flag_table import flags

OF_ALL_WORKERS = flags("""
    --namespace= --endpoint= --kv-state-endpoint= --discovery-backend= --store-kv= --request-plane= --response-plane=
    --event-plane= --fpm-trace --enable-local-indexer --dyn-tool-call-parser= --dyn-reasoning-parser=
    --dyn-default-thinking-mode= --dyn-enable-structural-tag --dyn-structural-tag-scope= --dyn-structural-tag-schema=
    --dyn-structural-tag= --custom-jinja-template= --endpoint-types= --dump-config-to= --migration-limit=
    --health-check-payload= --engine-request-limit= --multimodal-embedding-cache-capacity-gb= --output-modalities=*
    --frontend-decoding --route-to-encoder --multimodal-worker --multimodal-encode-worker""")
OF_VLLM_WORKERS = flags("""
    --use-vllm-tokenizer --sleep-mode-level= --multimodal-decode-worker --enable-multimodal --mm-prompt-template=
    --model-express-url= --connector=*""")
OF_SGLANG_WORKERS = flags("--use-sglang-tokenizer --multimodal-processor --disagg-config= --disagg-config-key=")
OF_TRTLLM_WORKERS = flags("""
    --publish-kv-events|--publish-events-and-metrics --conversation-affinity --conversation-affinity-dp-rank-source=
    --enable-multimodal --modality= --encode-endpoint= --allowed-local-media-path= --max-file-size-mb= --connector=*
    --model-loader-extra-config=""")
