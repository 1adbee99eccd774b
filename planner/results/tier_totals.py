"""Totals of KV tiers in a replay: the hits of each, whose sum is the prefix hits, and bytes over their links."""

from collections.abc import Sequence
from typing import Any

from planner.replays.fleet.shares import Share


def tier_totals(parts: Sequence[Share]) -> dict[str, Any]:
    """Return hits and traffic of some pools together; None for each tier that no pool has."""
    queried = sum(int(part.engine.num_queried_tokens) for part in parts)
    tiers = {"cpu": [part.pool.deployment.settings.cpu_tier for part in parts],
             "remote": [part.pool.deployment.settings.remote_tier for part in parts]}
    below = sum(int(part.links.num_hit_tokens.sum()) for part in parts)
    hits: dict[str, int | None] = {"gpu": None}
    if any(part.settings.has_tiers for part in parts):
        hits["gpu"] = sum(int(part.engine.num_hit_tokens) for part in parts) - below
    traffic: dict[str, Any] = {}
    for row, (name, of_parts) in enumerate(tiers.items()):
        there = [(tier, part.links[row]) for tier, part in zip(of_parts, parts, strict=True)
                 if tier is not None and part.settings.has_tiers]
        hits[name] = sum(int(link.num_hit_tokens) for _, link in there) if there else None
        for way, count in (("read", "num_read_blocks"), ("written", "num_written_blocks")):
            traffic[f"{name}_{way}_bytes"] = round(sum(
                int(link[count]) * tier.block_bytes for tier, link in there)) if there else None
    return {**{f"num_{name}_hit_tokens": count for name, count in hits.items()},
            **{f"{name}_hit_rate": count / queried if count is not None and queried else None
               for name, count in hits.items()}, **traffic}
