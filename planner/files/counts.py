"""Numbers of things in words."""


def count_text(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one.

    >>> count_text(1, "request"), count_text(2000, "request")
    ('1 request', '2,000 requests')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"
