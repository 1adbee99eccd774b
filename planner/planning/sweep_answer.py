"""The answer of `planner sweep`: all configurations of a grid, those on the front, and the best of a search."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from planner.files.keys import Key, Spread
from planner.results.answers import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A configuration of the grid."""

    values: Annotated[Mapping[str, Any], Spread("The axes, the metrics of the front and objective_… of each statistic "
                                                "objective [ms], by their names")]
    bottleneck: Annotated[str | None, Key("", "Limit that binds, as in the summary. Null without a result")]
    status: Annotated[str, Key("", "done, or why there is no result")]
    is_pareto: Annotated[bool, Key("", "Whether the configuration is on the front")]
    misses: Annotated[str, Key("", "Metrics whose limits it misses, separated by commas")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The result of a search for the front."""

    best: Annotated[Mapping[str, Any] | None, Key("", "Best configuration in the first metric that keeps the limits: "
                                                  "its axes, its row of the table, and command and command_lacks to "
                                                  "launch it. Null if none keeps them")]
    num_replays: Annotated[int, Key("1", "Configurations that were replayed")]
    num_descents: Annotated[int, Key("1", "Descents of the search")]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SweepAnswer(Answer):
    """The output of `planner sweep --json`."""

    output: Annotated[str, Key("", "Parquet file with all results")]
    num_configurations: Annotated[int, Key("1", "Configurations in that file")]
    status: Annotated[Mapping[str, int], Key("1", "Configurations by status: done, or why there is no result")]
    axes: Annotated[Mapping[str, tuple[Any, ...]], Key("", "Values by axis")]
    pareto: Annotated[tuple[str, ...], Key("", "Metrics of the front")]
    front: Annotated[tuple[Mapping[str, Any], ...], Key("", "Configurations on the front with all columns of the "
                                                        "file, by the first metric")]
    rows: Annotated[tuple[Configuration, ...], Key("", "All configurations: the front first, then by the first metric")]
    notes: Annotated[tuple[str, ...], Key("", "Notes, a sentence each")]
    optimum: Annotated[Optimum | None, Spread(only="with --optimize")] = None
