"""Write docs/formats.md, or the path given, from what the readers declare: `make formats`."""

import sys
from pathlib import Path

from planner.schema import TRACE_COLUMNS
from planner.settings.format_spec import INSTANTS
from planner.traces import FORMATS
from planner.traces.reader import LAYOUT_NAMES, Reader
from planner.traces.summary_files import KNOWN
from planner.traces.units import UNITS

PATH = Path(__file__).with_name("formats.md")
HEAD = """# Trace formats

<!-- Written by docs/make_formats.py from what the readers declare; change these, then run make formats. -->

A trace is a file, stdin (`-`), a bundled sample, or a table of a database. Text may be plain, .gz or .zst, and JSON may be lines or one document; the format is known from the content, not from the name. `--format` forces one. Every reader says what it read, and what it left out and why:

```
$ planner replay burst.csv --step-time linear:0.01,0.0001 --num-gpu-blocks 1000 2>&1 >/dev/null | head -1
trace burst.csv (burstgpt): read 3 rows, kept 2, dropped 1 (1 failed (0 tokens)); span 7 s, 0.1429 requests/s; input p50 279.5, p99 468.15 tokens; output p50 124, p99 227.88 tokens; ignored columns: Log Type
```

Requests that a file itself calls failed are left out and counted. Any other bad row is an error that names its line and value, unless `--on-bad-rows drop` is given. What a reader of results should know of a trace's arrivals is a note of the summary: that none are recorded, that requests were sent later than they were due, or that they look like a closed loop's.

## Any other file

`--column OURS=THEIRS:UNIT` names a column of any CSV, JSON, Parquet or SQL table, and `--where THEIRS=VALUE` the rows that count. Keys inside keys are named with dots between, and keys may have dots in them. The list of objects in an envelope (`{"records": […]}`, Elasticsearch's hits, Jaeger's spans) is opened; if a file has several lists, a path from its top names one, as in `--column input_tokens=calls.prompt`. Units of times are UNITS; without a unit, dates in any usual form are recognised, and so is the unit of numbers that count from 1970. Arrivals later than any trace lasts count from the earliest. `num_requests` is the number of requests that a row stands for ([usage exports](guides/read-your-log.md#rows-that-stand-for-many-requests)).

```
planner replay log.csv --column arrival_s=ts:ms --column input_tokens=prompt --column output_tokens=out --where model=a --step-time linear:0.01,0.0001 --num-gpu-blocks 1000
planner replay log.jsonl --column arrival_s=at:date --column input_tokens=usage.prompt --column output_tokens=usage.completion --step-time linear:0.01,0.0001 --num-gpu-blocks 1000
planner validate measured.csv --column ttft_s=ttft_client_ms:ms --column e2e_s=e2e_client_ms:ms --step-time linear:0.01,0.0001 --num-gpu-blocks 1000
```

With `--format` the map changes single columns of a known format: `--format mooncake --column hash_ids=hash_ids:256` reads ids of 256 tokens. In a study, a sweep or a targets file all of it is one text, `format = "columns,arrival_s=ts:ms,input_tokens=prompt,output_tokens=out,where model=a"`.

Beside our columns, INSTANTS are instants on the arrival's clock, from which `ttft_s` and `e2e_s` follow, counted from when the request was sent. Without a column of arrivals, `ended_at_s` and `e2e_s` give them. A length that the file lacks is its total of tokens less the other length. A number or a time has a column of its own.

## A database

A URI with a table or a query after `#` is read through [connectorx](https://github.com/sfu-db/connector-x) (`pip install 'llm-serving-planner[sql]'`), and its format is found as a file's is: `planner replay 'postgresql://user@host/litellm#LiteLLM_SpendLogs' …`, or `'…#select … where …'`. A password in it is not repeated in messages or results.

## Traces without arrivals

Some files say nothing of when requests were sent. Their replay asks for `--request-rate`, which draws Poisson arrivals as a benchmark's client does, or `--max-concurrency`, a closed loop; `planner capacity` takes them with `--scaling poisson`. `validate` and `calibrate` take them all the same, at the file's own rate or concurrency.

## Sessions

Where a file has sessions and measured ends, `parent_id` names the request of the session that ended last before each one came, and `think_time_s` the pause since. A request that waits for several names them with `;` between.

## Formats

In the order in which they are tried. *Arrivals*: whether the file says when requests were sent. *Fills*: columns in addition to lengths.
"""  # noqa: E501 - a paragraph of Markdown is a line


def main() -> None:
    """Write the page."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PATH
    path.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the page's text."""
    units = ", ".join(f"`{unit}`" for unit in UNITS)
    head = HEAD.replace("UNITS", units).replace("INSTANTS", ", ".join(f"`{name}`" for name in INSTANTS))
    no_traces = "".join(f"- {known.what[0].upper()}{known.what[1:]}: {known.instead}.\n" for known in KNOWN)
    columns = "".join(f"| `{column.name}` | {column.unit} | {column.meaning} |\n" for column in TRACE_COLUMNS)
    return (head + "\n" + "\n".join(map(_section, FORMATS.values()))
            + "\n## What is no trace\n\nFiles that are known, and what to give instead:\n\n" + no_traces
            + "\n## Our columns\n\n| column | unit | meaning |\n|---|---|---|\n" + columns
            + "\nJSONL also has `hash_ids`, a list: equal ids in equal positions mean equal content; and "
              "`hash_block_tokens`, the tokens that one id stands for.\n")


def _section(reader: Reader) -> str:
    """Return a format's part of the page."""
    known = {column.name for column in TRACE_COLUMNS}
    names = [name for name in reader.columns if name in known or name == "hash_ids"]
    names += [name for name, instant in (("ttft_s", "first_token_at_s"), ("e2e_s", "ended_at_s"))
              if instant in reader.columns and name not in names]
    fills = [name for name in names if name not in ("arrival_s", "input_tokens", "output_tokens")]
    lines = [f"### {reader.name}", "", f"{reader.meaning}.", "",
             f"- As: {', '.join(LAYOUT_NAMES[layout] for layout in reader.layouts)}",
             f"- Times: {reader.time}", f"- Tokens counted by: {reader.tokens}", f"- Arrivals: {reader.arrivals}"]
    if fills and len(fills) < len(known) - 3:
        lines.append(f"- Fills: {', '.join(f'`{name}`' for name in fills)}")
    if reader.skips:
        lines.append(f"- Left out and counted: {'; '.join(skip.reason for skip in reader.skips)}")
    if reader.block_tokens:
        lines.append(f"- Prefix ids: of {reader.block_tokens} tokens"
                     + (", only within a session" if reader.id_scope == "session" else ""))
    lines += [f"- Note: {note}" for note in reader.notes]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
