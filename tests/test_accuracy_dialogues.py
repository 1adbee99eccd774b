"""Which of a run's prompts go on where earlier ones left off, as the accuracy report tells it by their lengths."""

import doctest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.accuracy import dialogues
from benchmarks.accuracy.dialogues import block_ids, continued


def test_examples_hold() -> None:
    failed, attempted = doctest.testmod(dialogues)
    assert (failed, attempted > 0) == (0, True)


def round_robin(seed: int, users: int, rounds: int) -> tuple[list[int], list[int], list[int]]:
    """Return prompts, outputs and what each prompt continues: users ask in turn, and some leave after each round."""
    rng = np.random.default_rng(seed)
    prompts: list[int] = []
    outputs: list[int] = []
    before: list[int] = []
    last = [-1] * users
    staying = list(range(users))
    for _ in range(rounds):
        for user in staying:
            p = last[user]
            context = prompts[p] + outputs[p] if p >= 0 else int(rng.integers(200, 1500))
            before.append(p)
            prompts.append(context + int(rng.integers(5, 60)))
            outputs.append(int(rng.integers(20, 500)))
            last[user] = len(prompts) - 1
        staying = [user for user in staying if rng.random() < 0.8]
    return prompts, outputs, before


def test_dialogues_are_found_by_their_lengths() -> None:
    """Of 40 users in 5 rounds nearly every turn is found, and where the first ones end, give or take one."""
    shares = []
    for seed in range(20):
        prompts, outputs, before = round_robin(seed, users=40, rounds=5)
        found = continued(prompts, outputs)
        assert abs((found < 0).sum() - 40) <= 1
        shares.append(float((found == before).mean()))
    assert np.mean(shares) > 0.97


@given(st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 700)), max_size=60))
@settings(max_examples=100, deadline=None)
def test_later_turns_continue_shorter_prompts_in_their_order(lengths: list[tuple[int, int]]) -> None:
    prompts = [prompt for prompt, _ in lengths]
    found = continued(prompts, [output for _, output in lengths])
    turns = np.flatnonzero(found >= 0)
    assert (np.diff(found[turns]) > 0).all()
    assert all(found[j] < j and prompts[found[j]] < prompts[j] for j in turns)
    if len(turns):
        assert (turns == np.arange(turns[0], len(prompts))).all()


def test_prompts_of_one_length_are_no_dialogue() -> None:
    assert (continued([76] * 30, [20] * 30) == -1).all()


def test_blocks_are_shared_as_far_as_the_continued_prompt_goes() -> None:
    """Of 40 tokens two blocks of 16 are full; the turn after the next shares what its predecessor has of them."""
    first, second, third = block_ids([40, 70, 200], [-1, 0, 1], 16)
    assert (len(first), len(second), len(third)) == (3, 5, 13)
    assert second[:2].tolist() == first[:2].tolist() == third[:2].tolist()
    assert third[:4].tolist() == second[:4].tolist()
    assert len({*first, *second, *third}) == 3 + 3 + 9


@pytest.mark.parametrize(("prompts", "outputs"), [([1, 2], [1]), ([[1]], [[1]])])
def test_lengths_that_do_not_match_are_refused(prompts: list[int], outputs: list[int]) -> None:
    with pytest.raises(ValueError, match="one-dimensional and the same"):
        continued(prompts, outputs)
