"""A trace written in another format: the losses are counted, and refused if the meaning would be lost."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import polars as pl

from planner.errors import UsageError
from planner.files.counts import count_text
from planner.files.keys import Key
from planner.files.writing import STDOUT, write_atomically
from planner.traces import Trace
from planner.traces.export.anonymous import anonymize, check_anonymous
from planner.traces.export.export_format import Export
from planner.traces.export.export_formats import find_target
from planner.traces.parents import joined_parents, named_parents

VITAL = ("parent_id", "think_time_s")  # without them a closed loop becomes an open one
IDS = "prefix ids"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The account of a conversion."""

    paths: Annotated[tuple[Path, ...], Key("", "Files that were written")]
    format: Annotated[str, Key("", "Name of the target format")]
    num_requests: Annotated[int, Key("1", "Rows written")]
    lost: Annotated[Mapping[str, int], Key("1", "Requests with a value, by columns that the format cannot hold")]
    names_checked: Annotated[int | None, Key("1", "Different names looked for in an anonymous file. Null for others")]
    notes: Annotated[tuple[str, ...], Key("", "Facts that a user needs to read the file as it is meant")]

    @property
    def warnings(self) -> list[str]:
        """The columns left out, and the notes."""
        lost = ", ".join(f"{name} of {count_text(count, 'request')}" for name, count in self.lost.items())
        return [*([f"left out because {self.format} cannot store it: {lost}"] if lost else []), *self.notes]

    def __str__(self) -> str:
        checked = "" if self.names_checked is None else (
            f"; checked: no text, and none of {self.names_checked:,} names is in it")
        return (f"wrote {count_text(self.num_requests, 'request')} as {self.format}: {', '.join(map(str, self.paths))}"
                f"{checked}")


def convert(trace: Trace, path: Path, *, to: str | None = None, anonymous: bool = False, salt: str | None = None,
            lossy: bool = False) -> Account:
    """Write a trace, whole or not at all.

    Parameters
    ----------
    to : a name of `TARGETS`; None for the planner's own format by the path's ending.
    anonymous : keep timing, lengths and sharing alone, with hashed names, and prove it of the written bytes.
    salt : of the hashes; None for a secret one, so that two files do not agree.
    lossy : write though prefix ids or the order of turns are lost.

    Raises
    ------
    UnknownNameError : there is no such format.
    UsageError : the format would change the trace's meaning, or lose columns on which a replay depends.
    OutputError : the file cannot be written.
    """
    target = find_target(to, path)
    if salt is not None and not anonymous:
        raise UsageError("--salt: needs --anonymize; give both, or neither")
    trace = replace(trace, requests=trace.requests.with_columns(trace.request_id))
    trace, orphans = _with_known_parents(trace)
    target.check(trace)
    lost = _lost(trace, target)
    vital = [name for name in lost if name in (*VITAL, IDS)]
    if vital and not lossy:
        raise UsageError(f"{trace.source}: {target.name} cannot store {', '.join(vital)}, and a replay without them "
                         f"would differ; write --to jsonl, or give --lossy to drop them")
    written = anonymize(trace, secrets.token_hex() if salt is None else salt) if anonymous else trace
    files = target.write(written)
    if path == STDOUT and len(files) > 1:
        raise UsageError(f"--to {target.name} writes {len(files)} files, and stdout takes one; give a name, not -")
    checked = check_anonymous(files, written, trace) if anonymous else None
    paths = {path.with_name(path.name + ending): content for ending, content in files.items()}
    for file, content in paths.items():
        _write(file, content)
    return Account(paths=tuple(paths), format=target.name, num_requests=trace.num_requests, lost=lost,
                   names_checked=checked, notes=(*orphans, *target.notes(trace)))


def _write(path: Path, content: bytes) -> None:
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def _with_known_parents(trace: Trace) -> tuple[Trace, list[str]]:
    """Return a trace whose parents are all in it, and a note if some were not.

    A reader may drop a request that others wait for. A replay does not wait for it, and lets a request that waited for
    such alone arrive as recorded; a file that named it would be refused.
    """
    table = trace.requests
    was_cut = trace.num_requests < trace.account.rows_read  # else an unknown parent is an error, which stays one
    if "parent_id" not in table.columns or not was_cut:
        return trace, []
    named = named_parents(table)
    known = named.filter(pl.col("parent").is_in(table["request_id"].cast(pl.String).implode()))
    if known.height == named.height:
        return trace, []
    orphans = named.filter(~pl.col("row").is_in(known["row"].implode()))["row"].unique()
    changed = [joined_parents(known, table.height)]
    if "think_time_s" in table.columns:  # with it, a request without parents would wait for its session's last
        changed.append(table["think_time_s"].scatter(orphans, None))
    note = (f"{named.height - known.height:,} parents are missing because their rows were dropped; "
            f"{len(orphans):,} requests that waited only for them are written without parent_id and arrive as recorded")
    return replace(trace, requests=table.with_columns(changed)), [note]


def _lost(trace: Trace, target: Export) -> dict[str, int]:
    """Return the columns that the format cannot hold, with how many requests have them; row numbers do not count."""
    table = trace.requests
    lost = {name: table.height - table[name].null_count() for name in table.columns if name not in target.columns}
    if "request_id" in lost and set(table["request_id"]) == set(map(str, range(table.height))):
        del lost["request_id"]
    if trace.prefix is not None and not target.holds_ids:
        lost[IDS] = int((trace.prefix.offsets[1:] > trace.prefix.offsets[:-1]).sum())
    return lost
