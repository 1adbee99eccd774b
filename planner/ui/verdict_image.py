"""A verdict as a picture, to paste into a chat or a slide: its sentence, its cards with their bars, and a note."""

import io
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from planner.report.target_cards import Card

WIDTH, HEIGHT, MARGIN, GAP = 1200, 630, 60, 24  # of the picture [px]; as link previews have it
INK, QUIET, PAPER, LINE = "#0d1117", "#57606a", "#ffffff", "#d8dee4"
KEPT, MISSED = "#0072B2", "#D55E00"  # as the page's bars
CARD_TOP, CARD_BOTTOM = 290, 520
MOST_LINES = 3  # of the sentence, and of the note
SPELT = str.maketrans({"×": "x", "—": "-", "–": "-", "÷": "/", "±": "+/-", "−": "-"})  # Pillow's font has ASCII alone


def verdict_png(name: str, sentence: str, cards: Sequence[Card], note: str) -> bytes:
    """Return the picture as PNG.

    Parameters
    ----------
    name : above the sentence.
    cards : up to four, drawn side by side.
    note : below the cards, such as the trace and its deployment.
    """
    image = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    draw = ImageDraw.Draw(image)
    _write(draw, MARGIN, MARGIN - 16, name, QUIET, 24)
    said = spelt(sentence)
    size = next((size for size in (52, 44, 36) if len(_lines(said, size)) <= 2), 30)
    for place, line in enumerate(_lines(said, size)[:MOST_LINES]):
        _write(draw, MARGIN, MARGIN + 36 + place * 1.25 * size, line, INK, size)
    width = (WIDTH - 2 * MARGIN - GAP * (len(cards) - 1)) / max(1, len(cards))
    for place, card in enumerate(cards):
        _draw_card(draw, card, MARGIN + place * (width + GAP), width)
    for place, line in enumerate(_lines(spelt(note), 20)[:MOST_LINES]):
        _write(draw, MARGIN, CARD_BOTTOM + 26 + 26 * place, line, QUIET, 20)
    content = io.BytesIO()
    image.save(content, "PNG", optimize=True)
    return content.getvalue()


def _draw_card(draw: ImageDraw.ImageDraw, card: Card, left: float, width: float) -> None:
    """Draw a card with a bar for the share of its limit."""
    draw.rounded_rectangle((left, CARD_TOP, left + width, CARD_BOTTOM), 12, outline=LINE, width=2)
    inner, end = left + 22, left + width - 22
    _write(draw, inner, CARD_TOP + 20, card.title, QUIET, 22)
    _write(draw, inner, CARD_TOP + 54, card.value, INK, 40)
    _write(draw, inner, CARD_TOP + 108, card.beside, QUIET, 20)
    if card.used is not None:
        draw.rounded_rectangle((inner, CARD_TOP + 148, end, CARD_TOP + 158), 5, fill=LINE)
        share = min(1.0, max(0.0, card.used))
        if share * (end - inner) >= 10:
            draw.rounded_rectangle((inner, CARD_TOP + 148, inner + share * (end - inner), CARD_TOP + 158), 5,
                                   fill=MISSED if card.is_met is False else KEPT)
    _write(draw, inner, CARD_TOP + 180, card.limit, MISSED if card.is_met is False else QUIET, 20)


def spelt(text: str) -> str:
    """Return text in the characters that the picture's font has.

    >>> spelt("3 × L40S — ± 4 %, 日")
    '3 x L40S - +/- 4 %, ?'
    """
    return text.translate(SPELT).encode("ascii", "replace").decode()


def _write(draw: ImageDraw.ImageDraw, x: float, y: float, text: str, color: str, size: int) -> None:
    draw.text((x, y), spelt(text), color, _font(size))


def _lines(text: str, size: int) -> list[str]:
    """Return text in lines that fit the picture."""
    font, lines = _font(size), [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if font.getlength(longer) <= WIDTH - 2 * MARGIN:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
