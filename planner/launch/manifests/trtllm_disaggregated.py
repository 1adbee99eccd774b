"""Configuration of `trtllm-serve disaggregated`: context and generation servers with their options."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from planner.launch.described import Described
from planner.launch.manifests.containers import count_of

SERVERS = {"context_servers": "prefill", "generation_servers": "decode"}
# Keys of the router and of addresses: tensorrt_llm/llmapi/disagg_utils.py.
OF_THE_ROUTER = ("hostname", "port", "urls", "num_instances", "router", "conditional_disagg_config", "max_retries",
                 "perf_metrics_max_requests", "disagg_cluster", "otlp_config", "node_id", "schedule_style")
ELSEWHERE = ("names addresses without options; the options stand in the commands of these servers; give each "
             "command to its [[pool]]")


def is_trtllm_disaggregated(document: Mapping[str, Any]) -> bool:
    """Tell whether a document has context and generation servers."""
    return all(isinstance(document.get(name), Mapping) for name in SERVERS)


def of_trtllm_disaggregated(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the servers of both roles; options beside them hold for both, and a server's own go before."""
    for name, role in SERVERS.items():
        servers = document[name]
        own = _options(servers)
        options = {**_options(document), **own}
        model = options.pop("model", None)
        text = yaml.safe_dump(options, sort_keys=False)
        words = ["trtllm-serve", *([] if model is None else [str(model)]), "--config", name]
        yield Described(words=words, place=name, files={name: text}, replicas=count_of(servers.get("num_instances")),
                        role=role, notes=() if own else (ELSEWHERE,))


def _options(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of servers among the keys of a table."""
    return {key: value for key, value in document.items() if key not in (*SERVERS, *OF_THE_ROUTER)}
