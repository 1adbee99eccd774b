"""What `planner db show` says of a model on a GPU: the same step times as a replay would take."""

import pytest
from steps import stack_of, step, terms_of

from planner.deployment.deploy import deploy
from planner.report.profile_tables import STEP_CLASSES, step_class_terms
from planner.settings.scenario import Scenario


@pytest.mark.parametrize(("model", "window"), [("llama-3.1-8b", 0), ("gpt-oss-20b", 128), ("gemma-3-12b", 1024)])
def test_step_classes_are_steps_like_any_other(model: str, window: int) -> None:
    found = step_class_terms(deploy(Scenario(model=model, gpu="h100-sxm", max_num_seqs=256)))
    for name, prompt, decodes, context in STEP_CLASSES:
        expected = terms_of(stack_of(model), step(prompt, decodes, context, window=window))
        assert {term: found[name][term] for term in expected} == pytest.approx(expected)
        assert found[name]["total_s"] == pytest.approx(sum(expected.values()))
