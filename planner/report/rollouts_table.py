"""The answer of `planner rollouts` as text: the step, its parts, numbers of generators, and other ways to run it."""

from planner.files.counts import share_text
from planner.planning.rollouts_answer import RolloutsAnswer, RolloutStep
from planner.report.text import Grid, Text

FLEETS = ("generators", "GPUs", "step", "generation", "last 10 %", "trainer waits", "generators idle",
          "tokens/s a GPU", "USD a step")
CHANGES = ("faster", "cut", "staleness", "step", "generation", "trainer waits", "generators needed", "options",
           "change")


def rollouts_table(answer: RolloutsAnswer) -> Text:
    """Return the sentence, the parts of a step, a row for each number of generators, and a row for each change."""
    step = answer.step
    parts = [("generation", step.generation_s, "of which " + ", ".join((
        f"{step.until_90_percent_s:,.1f} s until 90 % of the samples have ended",
        f"{step.until_99_percent_s - step.until_90_percent_s:,.1f} s until 99 %",
        f"{step.generation_s - step.until_99_percent_s:,.1f} s for the last 1 %"))),
             ("weight update", step.update_s, "generators and trainer wait"),
             ("trainer", step.trainer_s, f"{answer.prompts:,} prompts of {answer.group_size:,} samples"),
             ("trainer waits", step.trainer_wait_s, f"{share_text(step.trainer_wait_share)} of the step"),
             ("generators wait", step.generator_wait_s, f"with stragglers of others, generators have no sample in "
                                                        f"{share_text(step.generator_idle_share)} of the step")]
    return Text([
        answer.sentence,
        Grid(heads=("", "", ""), rows=[(name, f"{seconds:,.1f} s", words) for name, seconds, words in parts],
             left=(0, -1), indent=2),
        f"samples: {answer.output_tokens_p50:,.0f} output tokens (p50), {answer.output_tokens_p99:,.0f} (p99), "
        f"{answer.output_tokens_max:,} (most); the longest of a batch alone takes {answer.longest_alone_s:,.1f} s; "
        f"staleness in weight updates {step.mean_staleness:.2g} on average, {step.max_staleness:,} at most",
        Grid(heads=FLEETS, rows=[_fleet(each) for each in answer.fleets], left=()),
        "", f"other ways, with {step.num_replicas:,} generators:",
        Grid(heads=CHANGES, left=(-2, -1), rows=[
            (f"{each.speedup:.2f} ×", share_text(each.cut_share), f"{each.step.mean_staleness:.2g}",
             f"{each.step.step_s:,.1f} s", f"{each.step.generation_s:,.1f} s", share_text(each.step.trainer_wait_share),
             "–" if each.fewest_replicas is None else f"{each.fewest_replicas:,}", each.option, each.meaning)
            for each in answer.changes])])


def _fleet(step: RolloutStep) -> tuple[str, ...]:
    usd = "–" if step.cost_usd_per_step is None else f"{step.cost_usd_per_step:,.2f}"
    return (f"{step.num_replicas:,}", f"{step.num_gpus:,}", f"{step.step_s:,.1f} s", f"{step.generation_s:,.1f} s",
            f"{step.stragglers_s:,.1f} s", share_text(step.trainer_wait_share), share_text(step.generator_idle_share),
            f"{step.output_tokens_per_s_per_gpu:,.0f}", usd)
