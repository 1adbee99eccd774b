"""What `planner db show` says of a model on a GPU: the same step times as a replay would take."""

import pytest
from steps import stack_of, step, terms_of

from planner.deployment.deploy import deploy
from planner.report.profile_tables import STEP_CLASSES, show_profile, step_class_terms
from planner.settings.scenario import Scenario


@pytest.mark.parametrize(("model", "window"), [("llama-3.1-8b", 0), ("gpt-oss-20b", 128), ("gemma-3-12b", 1024)])
def test_step_classes_are_steps_like_any_other(model: str, window: int) -> None:
    found = step_class_terms(deploy(Scenario(model=model, gpu="h100-sxm", max_num_seqs=256)))
    for name, prompt, decodes, context in STEP_CLASSES:
        expected = terms_of(stack_of(model), step(prompt, decodes, context, window=window))
        assert {term: found[name][term] for term in expected} == pytest.approx(expected)
        assert found[name]["total_s"] == pytest.approx(sum(expected.values()))


def test_a_models_layers_are_listed_by_their_kinds() -> None:
    value, text = show_profile("glm-5.2", Scenario())
    own, reusing = value["architecture"]["layers"]
    assert (own["count"], own["attention"]["kind"], own["indexer"]["topk"]) == (21, "Mla", 2048)
    assert (reusing["count"], reusing["reuses_choice"]) == (57, True)
    assert "\n  57 × Mla, num_heads 64, " in str(text)
    assert "\n  75 × Experts, num_experts 256, num_experts_per_tok 8, width 2048, " in str(text)
