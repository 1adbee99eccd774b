"""One colour for each phase of a request and each term of a step, the same in every figure; results have others."""

from planner.report.figures.style import (
    BROWN,
    GREY,
    INDIGO,
    OLIVE,
    ORANGE,
    ROSE,
    SALMON,
    SAND,
    SKY,
    TEAL,
    WINE,
    YELLOW,
)

PHASE_COLORS = {"retry": WINE, "gateway": BROWN, "frontend": GREY, "queue": SKY, "load": INDIGO, "prefill": ORANGE,
                "handover": OLIVE, "decode": TEAL, "interference": SALMON, "transfer": YELLOW, "preemption": SAND,
                "recompute": ROSE}
TERM_COLORS = {"linear_s": BROWN, "experts_s": INDIGO, "activations_s": GREY, "attention_prompt_s": ORANGE,
               "attention_decode_s": TEAL, "lm_head_s": SAND, "collectives_s": SALMON, "overhead_s": WINE,
               "swap_s": YELLOW, "draft_s": OLIVE, "adapters_s": ROSE, "rank_wait_s": SKY, "images_s": "#B8A9C9"}
SPAN_COLORS = {"waiting": PHASE_COLORS["queue"], "loading": PHASE_COLORS["load"],
               "prompt chunk": PHASE_COLORS["prefill"], "decode": PHASE_COLORS["decode"],
               "decode beside prompts": PHASE_COLORS["interference"], "recompute": PHASE_COLORS["recompute"],
               "left out": PHASE_COLORS["preemption"]}
