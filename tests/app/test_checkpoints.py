"""The dashboard keeps the checkpoint that was asked for, gives no engine another one's values, and says what starts."""

from typing import Any

import pytest
from pages import linked, opened, press, said
from streamlit.testing import v1 as testing

ENGINE = '''
import streamlit as st
from planner.ui.kept_settings import keep
from planner.ui.link import begin_run
from planner.ui.option_fields import OPTION_SETTINGS, option_field
begin_run(OPTION_SETTINGS)
keep(OPTION_SETTINGS)
for option in ("engine", "engine_version", "moe_backend", "max_num_seqs"):
    option_field(option)
'''


@pytest.mark.parametrize("model", ["meta-llama/Llama-3.3-70B-Instruct", "llama-3.3-70b"])
def test_a_pasted_command_keeps_its_checkpoint(model: str) -> None:
    page = opened("replay", tensor_parallel_size=1)
    page.text_area(key="launch").set_value(f"vllm serve {model} -tp 4")
    page = press(page, "Use its options")
    assert not page.exception
    assert page.selectbox(key="model").value == model
    assert f"--model {model}" in page.code[-1].value


def test_a_link_keeps_its_checkpoint() -> None:
    page = linked("replay", limit="100", model="meta-llama/Llama-3.1-8B-Instruct")
    assert not page.error
    assert page.selectbox(key="model").value == "meta-llama/Llama-3.1-8B-Instruct"


def test_another_engine_gets_none_of_its_values() -> None:
    page: Any = testing.AppTest.from_string(ENGINE, default_timeout=60).run()
    page.text_input(key="engine_version").set_value("0.11.0")
    page.selectbox(key="moe_backend").set_value("marlin")
    page.number_input(key="max_num_seqs").set_value(64).run()
    page.selectbox(key="engine").set_value("sglang").run()
    assert not page.exception
    state = page.session_state
    assert (state["engine_version"], state["moe_backend"], state["max_num_seqs"]) == (None, "auto", 64)
    assert page.caption[0].value == (
        "SGLang is replayed without vLLM's engine_version = 0.11.0, moe_backend = marlin; in their place: the newest "
        "release, the default moe_backend")


def test_a_deployment_that_would_not_start_says_so_first() -> None:
    page = opened("replay", limit=100, model="qwen3-32b", gpu="h100-sxm")
    assert "Would not start as launched: vLLM's KV cache holds 34,288 tokens" in said(page).replace("\\", "")
