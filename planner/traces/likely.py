"""Columns under other names than ours: which column of a file a name looks like."""

import dataclasses
import difflib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import polars as pl

from planner.schema import REQUIRED_TRACE_COLUMNS
from planner.settings.format_spec import MAPPED
from planner.traces.column_map import COLUMNS
from planner.traces.reader import ENDED, LESS, MODEL, Head, Reader, Skip

_PROMPT = ("inputtokens", "prompttokens", "inputtokencount", "prompttokencount", "numprompttokens", "numinputtokens",
           "numprefilltokens", "nprompttokens", "ninputtokens", "prompttok", "inputtok", "intok", "intokens",
           "tokensin", "tokin", "tokensprompt", "tokensinput", "promptlen", "promptlength", "inputlen", "inputlength",
           "isl", "contexttokens", "requesttokens", "promptsize", "inputtoken", "prompttoken", "ncontexttokens",
           "usageinputtokens", "uncachedinputtokens", "usageinputtokensnocache", "inputtokensnocache",
           "processedprompttokens", "inputusage")
_ANSWER = ("outputtokens", "completiontokens", "outputtokencount", "completiontokencount", "candidatestokencount",
           "generatedtokens", "numoutputtokens", "numcompletiontokens", "numgeneratedtokens", "numdecodetokens",
           "ngeneratedtokens", "ncompletiontokens", "noutputtokens", "completiontok", "outputtok", "outtok",
           "outtokens", "tokensout", "tokout", "tokenscompletion", "tokensoutput", "gentokens", "responsetokens",
           "completionlen", "completionlength", "outputlen", "outputlength", "responselen", "responselength", "osl",
           "outputtoken", "completiontoken", "usageoutputtokens", "outputusage")
_START = ("starttime", "startingat", "startedat", "starttimestamp", "timestamp", "ts", "datetime", "createdat",
          "created", "time", "timelocal", "timeiso8601", "requesttimestamp", "eventtime", "receivedat", "arrivaltime",
          "arrivedat", "arrival", "sentat", "submittedat", "aggregationtimestamp", "bucketstart", "windowstart",
          "periodstart", "intervalstart", "bucket", "interval", "period", "timegenerated", "logtime", "timestamputc",
          "date", "usagedate", "day", "hour", "month", "week", "start", "at", "t")
_END = ("endtime", "endingat", "endedat", "endtimestamp", "bucketend", "windowend", "periodend", "intervalend", "end",
        "endts")
_FINISHED = ("finishtime", "finishedat", "finishtimestamp", "completedat", "completedtime")
# Our column -> names in small letters and digits, the likeliest first.
NAMES: Mapping[str, tuple[str, ...]] = {
    "arrival_s": _START, "input_tokens": _PROMPT, "output_tokens": _ANSWER, ENDED: _END + _FINISHED,
    "num_requests": ("nummodelrequests", "numrequests", "requests", "requestcount", "requestscount", "nrequests",
                     "reqcount", "reqs", "numreqs", "nreqs", "countobservations", "counttraces", "observations",
                     "numberofrequests", "apirequests", "modelrequests", "azureopenairequests", "calls", "numcalls",
                     "callcount", "apicalls", "ncalls", "invocations", "invocationcount", "successfulrequests",
                     "completedrequests", "numtexts", "ntexts", "textcount", "numdocuments", "ndocuments",
                     "documentcount", "count", "counts", "n", "cnt", "freq", "frequency", "occurrences", "weight"),
}
REQUEST_NAMES = NAMES["num_requests"][:-8]  # the others count anything
_OF_TEXTS = re.compile(r"^(num|n|)(texts|inputs|documents|docs|pairs)$|^(text|input|document|pair)s?count$")
_OFFERS: Mapping[str, tuple[str, ...]] = {
    "e2e_s": ("latency", "e2elatency", "duration", "elapsed", "responsetime", "totaltime", "e2e", "e2el",
              "requesttime", "upstreamresponsetime", "requestduration", "elapsedtime", "processingtime"),
    "ttft_s": ("ttft", "timetofirsttoken", "firsttokenlatency"),
    "session_id": ("session", "sessionid", "conversationid", "chatid", "threadid"),
    "tenant": ("model", "modelname", "modelid", "user", "userid", "customer", "team", "apikeyid"),
}
_DEPLOYED: Mapping[str, tuple[str, ...]] = {
    MODEL: ("model", "modelname", "modelid", "requestmodel", "genairequestmodel", "genaimodelname", "servedmodelname",
            "llmmodel", "modelgroup"),
    "gpu": ("gpu", "gputype", "gpuname", "gpumodel", "accelerator", "hardware"),
    "engine": ("engine", "servingengine", "enginename", "backend"),
}
TOTAL = "total_tokens"
_ALL = {**NAMES, **_OFFERS, **_DEPLOYED, TOTAL: ("totaltokens", "totaltokencount", "tokenstotal", "numtotaltokens",
                                                 "totaltok", "usagetotaltokens")}
_HTTP_STATUS = ("status", "statuscode", "httpstatus", "httpstatuscode", "httpcode", "responsecode", "responsestatus",
                "httpresponsecode", "responsestatuscode")
NEAR, SHORTEST_NEAR = 0.6, 5  # similarity of a column's name to a likely one, and the letters of such a name
LONGEST_NAME = 100  # characters; the search for a unit takes time with the square of the length
_SUM, _MEAN = re.compile(r"^(total|sum|summe)(?=.)|(?<=.)(total|sum)$"), re.compile(
    r"^(avg|mean|average|median|p50|tokensper)(?=.)|(?<=.)(avg|mean|average|perrequest|p50)$")
_BEGINS = re.compile(r"start|arriv|begin|sent|request|receiv", re.IGNORECASE)
_ENDS = re.compile(r"^end|(?<![sv])end(ed)?(time|at|timestamp|ts|s|ms)?$|finish|complet")
# A name that is near to a likely one must have such a word.
_WORDS = {"arrival_s": re.compile("stamp|date|start|begin|arriv|sent|receiv|creat|submit"),
          "input_tokens": re.compile("tok|len|size"), "output_tokens": re.compile("tok|len|size")}
_UNIT = re.compile(r"[ _.(\[-]+(?i:(ms|us|ns|utc|iso|milliseconds|seconds|sec|s))[)\]]*$|(?<=[a-z])(Ms|Us|Ns|Utc|Iso)$")
_UNITS = {"ms": "ms", "milliseconds": "ms", "us": "us", "ns": "ns", "s": "s", "sec": "s", "seconds": "s"}


class Likeness(NamedTuple):
    """A column that looks like one of ours.

    Parameters
    ----------
    path : of the column in the file.
    rank : place of its name among the likely ones.
    of : "sum" or "mean" if its name says so.
    unit : that its name ends in.
    """

    path: str
    rank: int
    of: str = ""
    unit: str = ""


def likeness(head: Head, name: str, near: str = "") -> Likeness | None:
    """Return the column of a file that looks most like one of ours; of several, one beside a path, then the least deep.
    """
    likely = [like for path in head.paths if (like := _like(path, _ALL[name])) is not None]
    return min(likely, default=None, key=lambda like: (
        like.rank, like.path.rpartition(".")[0] != near.rpartition(".")[0], like.path.count(".")))


def _like(path: str, names: tuple[str, ...]) -> Likeness | None:
    leaf = path.rpartition(".")[2]
    if len(leaf) > LONGEST_NAME:
        return None
    match = _UNIT.search(leaf)
    unit = "" if match is None else _UNITS.get((match[1] or match[2]).lower(), "")
    for text in (leaf, leaf[:match.start()] if match is not None else leaf):
        plain = _plain(text)
        for of, pattern in (("", None), ("sum", _SUM), ("mean", _MEAN)):
            bare = plain if pattern is None else pattern.sub("", plain, count=1)
            if bare in names and (pattern is None or bare != plain):
                return Likeness(path, names.index(bare), of, unit)
    return None


def counts_texts(path: str) -> bool:
    """Tell whether a column counts the texts of one request, by its name."""
    return _OF_TEXTS.search(_plain(path.rpartition(".")[2])) is not None


def names_end(path: str) -> bool:
    """Tell whether a column has the ends of requests, by its name."""
    return _ENDS.search(_plain(path.rpartition(".")[2])) is not None


def _plain(name: str) -> str:
    """Return a name in small letters and digits."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def guessed(head: Head, reader: Reader = COLUMNS) -> Reader | None:
    """Return a reader with the columns that a file's names look like; None if lengths, or any time or count, are not
    among them.

    Parameters
    ----------
    reader : with columns that are known already.
    """
    known = {name: path for name, path in reader.columns.items() if head.has(path)}
    likely = {name: like for name in NAMES if name not in known and (like := likeness(head, name)) is not None}
    prompt = known.get("input_tokens") or (likely["input_tokens"].path if "input_tokens" in likely else "")
    if (count := likeness(head, "num_requests", prompt)) is not None and "num_requests" in likely:
        likely["num_requests"] = count
    arrival = likely.get("arrival_s")
    if ENDED in likely and arrival is not None and not _BEGINS.search(arrival.path) and likely[ENDED].rank < len(_END):
        return None  # a time of no event beside an end may be the end's
    if not {"arrival_s", "num_requests"} & {*known, *likely} and (
            latency := likeness(head, "e2e_s")) is not None and latency.unit and "e2e_s" not in known:
        likely["e2e_s"] = latency
    columns = known | {name: like.path for name, like in likely.items()}
    columns |= (rest := _from_total(head, columns))
    if not {"input_tokens", "output_tokens"} <= columns.keys() or not (
            {"arrival_s", "num_requests"} & columns.keys() or {ENDED, "e2e_s"} <= columns.keys()):
        return None
    units = {like.path: like.unit for like in likely.values() if like.unit}
    words = ", ".join(f"{like.path} as {name}" for name, like in likely.items())
    totals = {name: f"{path} - {rest[LESS + name]}" for name, path in rest.items() if LESS + name in rest}
    spec = ",".join(f"{name}={path}" for name, path in {
        **{name: _with_unit(like) for name, like in likely.items()}, **totals}.items())
    notes = [f"read by the names of its columns: {words}; --column names others"] if likely else []
    notes += [f"{name} is {words}; --column {name}=COLUMN names another" for name, words in totals.items()]
    time = likely.get("arrival_s") or (None if "arrival_s" in known else likely.get(ENDED))
    return dataclasses.replace(
        reader, name=f"{reader.name},{spec}" if spec else reader.name, columns=columns, also={},
        unsure_time=time.path if time is not None and not time.unit else "",
        units={**reader.units, **units}, notes=(*reader.notes, *notes)
    )


def _from_total(head: Head, columns: Mapping[str, str]) -> dict[str, str]:
    """Return the one length that columns lack as a total, and the other length, which is taken from the total."""
    lengths = ("input_tokens", "output_tokens")
    missing = [name for name in lengths if name not in columns]
    if len(missing) != 1:
        return {}
    other = next(columns[name] for name in lengths if name in columns)
    total = likeness(head, TOTAL, other)
    return {} if total is None or total.of or total.path == other else {
        missing[0]: total.path, LESS + missing[0]: other}


def with_http_status(head: Head, reader: Reader) -> Reader:
    """Return a reader that leaves out the requests whose HTTP status is 4xx or 5xx, if a file has such a column."""
    path = next((path for path in head.paths if _plain(path.rpartition(".")[2]) in _HTTP_STATUS), None)
    if path is None or "status" in reader.columns:
        return reader
    skip = Skip(reason=f"{path} is 4xx or 5xx", where=pl.col("status").str.contains(r"^[45]\d\d(\.0)?$"))
    return dataclasses.replace(reader, columns={**reader.columns, "status": path}, skips=(*reader.skips, skip))


def with_deployed(head: Head, reader: Reader) -> Reader:
    """Return a reader that also reads the model, GPU and engine of each row, if columns of the file are named so."""
    is_deep = any(path not in head.columns for path in reader.columns.values())  # one deep column makes reading slow
    likely = {name: like.path for name in _DEPLOYED if (like := likeness(head, name)) is not None
              and (is_deep or like.path in head.columns)}
    return dataclasses.replace(reader, columns={**reader.columns, **likely})


def nearest_names(head: Head, missing: Mapping[str, str],
                  known: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return sentences on the columns that may be the missing ones, and the likeliest of each, COLUMN without one.

    Parameters
    ----------
    missing : our column, or a condition, -> name that the file lacks.
    known : columns that the user has named, with their units.
    """
    taken = {*MAPPED, *(path.partition(":")[0] for path in known.values())}
    left = [path for path in head.paths if path not in taken]
    likely = {name: like for name in REQUIRED_TRACE_COLUMNS if (like := likeness(head, name)) is not None}
    rest = _from_total(head, {name: like.path for name, like in likely.items()})
    words: list[str] = []
    nearest: dict[str, str] = {}
    for name, wanted in missing.items():
        if name in rest and wanted == name:
            words.append(f"{name} is {rest[name]} - {rest[LESS + name]}")
            continue
        like = likely.get(name)
        end = likeness(head, ENDED) if name == "arrival_s" and like is None else None
        if end is not None and end.path in left:  # the arrival is the end less the latency
            latency = likeness(head, "e2e_s")
            words.append(f"{end.path} looks like {ENDED}")
            nearest |= {ENDED: _with_unit(end), "e2e_s": "COLUMN" if latency is None else _with_unit(latency, "UNIT")}
            continue
        free = [path for path in left if path not in nearest.values()]
        close = [_with_unit(like)] if like is not None and like.path in free else difflib.get_close_matches(
            wanted, free if name in MAPPED else head.paths, n=1, cutoff=0.4) if wanted != name else _close(free, name)
        if close:
            words.append(f"{like.path} looks like {name}" if like is not None else
                         f"{' or '.join(close)} may be {name}" if wanted == name else
                         f"did you mean {close[0]!r} for {wanted}")
        nearest[name] = close[0] if close else "COLUMN"
    return words, nearest


def _with_unit(like: Likeness, other: str = "") -> str:
    return like.path + (f":{unit}" if (unit := like.unit or other) else "")


def _close(paths: Iterable[str], name: str) -> list[str]:
    """Return columns, up to three, whose names are near to a likely name of ours, and are likely for nothing else."""
    near = {path: max((difflib.SequenceMatcher(None, _plain(path[-LONGEST_NAME:]), likely).ratio()
                       for likely in NAMES.get(name, ()) if len(likely) >= SHORTEST_NEAR), default=0.0)
            for path in paths if (name not in _WORDS or _WORDS[name].search(path.lower()))
            and not any(_like(path, names) for names in _ALL.values()) and not names_end(path)}
    return sorted((path for path, ratio in near.items() if ratio >= NEAR), key=lambda path: -near[path])[:3]


def offers(head: Head, known: Mapping[str, str]) -> Iterator[str]:
    """Yield which columns of a file look like ours that need not be there, as options.

    Parameters
    ----------
    known : columns that the user has named.
    """
    for name in _OFFERS:
        like = None if head.has(name) or name in known else likeness(head, name)
        if like is not None:
            unit = f":{like.unit or 'UNIT (s or ms)'}" if name in ("e2e_s", "ttft_s") else ""
            yield f"{like.path} looks like {name}: --column {shlex.quote(f'{name}={like.path}')}{unit}"
