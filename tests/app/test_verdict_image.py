"""A verdict as a picture: its bars are as long as the cards say, and their colour says whether the limit is kept."""

import io

import pytest

from planner.report.target_cards import Card

pytest.importorskip("streamlit")
Image = pytest.importorskip("PIL.Image")

from planner.ui.verdict_image import CARD_TOP, HEIGHT, MARGIN, WIDTH, verdict_png  # noqa: E402

KEPT, MISSED = (0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)


def bar(image: object, color: tuple[int, int, int]) -> int:
    """Return how many pixels of the bars' row have a colour."""
    return sum(image.getpixel((x, CARD_TOP + 153)) == color for x in range(WIDTH))  # type: ignore[attr-defined]


def drawn(*cards: Card) -> object:
    image = Image.open(io.BytesIO(verdict_png("Replay", "Overloaded: 26 requests/s arrive " * 12, cards, "3 × L40S")))
    assert (image.format, image.size) == ("PNG", (WIDTH, HEIGHT))
    return image


def test_a_bar_has_the_length_of_its_share_and_the_colour_of_its_verdict() -> None:
    whole = WIDTH - 2 * MARGIN - 2 * 22  # one card over the width, without its inner margins
    half = drawn(Card(title="TTFT", value="p99 250 ms", beside="", used=0.5, limit="of 500 ms", is_met=True))
    assert bar(half, KEPT) == pytest.approx(whole / 2, abs=3)
    assert bar(half, MISSED) == 0
    over = drawn(Card(title="TTFT", value="p99 5 s", beside="", used=10.0, limit="10 × 500 ms", is_met=False))
    assert bar(over, MISSED) == pytest.approx(whole, abs=3)
    none = drawn(Card(title="TTFT", value="p99 never", beside="", limit="limit 500 ms", is_met=False))
    assert bar(none, KEPT) == bar(none, MISSED) == 0
