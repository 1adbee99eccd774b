"""The actions of the trace commands: describe, draw and convert."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from planner.commands.actions import publish
from planner.commands.outputs import check_outputs
from planner.errors import NoOutputsError, UsageError
from planner.files.keys import asdict
from planner.files.writing import STDOUT, write_text
from planner.planning.synth_answer import ModelAnswer
from planner.progress import counted, stage
from planner.report.text import Grid, Text
from planner.report.trace_tables import closeness_table, description_table, model_table
from planner.settings.format_spec import Reading
from planner.settings.scenario import Scenario
from planner.traces import Trace, read_trace
from planner.traces.results import without_outputs
from planner.traces.synthesis import Model


def describe(source: str, cache_tokens: float | None, html: Path | None, lengths: Path | None, reading: Reading,
             json: Path | None) -> None:
    """Print the description of a trace, and write it as JSON and as a page with figures."""
    from planner.traces.shaping.description import describe as describe_trace

    check_outputs({"--html": html, "--json": json}, source)
    if html is not None:
        from planner.report.trace_report import check_page_path, write_description

        check_page_path(html)
    trace = _read(source, reading, lengths, needs_outputs=source == "-")  # stdin is read once
    with stage(f"describing {source}"):
        description = describe_trace(trace, cache_tokens=cache_tokens)
    if html is not None:
        with stage(f"drawing {html}"):
            write_description(trace, description, html)
    publish(asdict(description), description_table(description), json)


def convert(source: str, path: Path, to: str | None, anonymize: bool, salt: str | None, lossy: bool,
            lengths: Path | None, reading: Reading, json: Path | None) -> None:
    """Write a trace in another format, and print and write the account of the conversion."""
    from planner.traces.export import convert as convert_trace

    check_trace_outputs(source, {"--output": path, "--json": json}, to)
    trace = _read(source, reading, lengths)
    with stage(f"writing {path}"):
        account = convert_trace(trace, place_of(path), to=to, anonymous=anonymize, salt=salt, lossy=lossy)
    print_notes(account.warnings)
    publish_beside(path, asdict(account), str(account), json)


def synth(source: str, options: Mapping[str, Any], scenario: Scenario, changes: Mapping[str, Any],
          slo: str | None, attainment: float, reading: Reading, json: Path | None) -> None:
    """Fit a model to a trace or read one, change it, draw a trace from it, and say how close that is."""
    from planner.traces.export import convert as convert_trace
    from planner.traces.fitting import fit_workload, on_fine_clock
    from planner.traces.synthesis.generate import generate
    from planner.traces.synthesis.traffic_model import to_toml

    output, save = options["output"], options["save"]
    check_trace_outputs(source, {"--output": output, "--json": json, "--save": save}, options["to"])
    trace, fit = None, None
    if options["fit"]:
        trace, notes = on_fine_clock(_read(source, reading))
        print_notes(notes)
        with stage(f"fitting a model to {source}"):
            fit = fit_workload(trace, process=options["arrivals"], seed=options["seed"] or 0)
        recorded, tried = fit
    else:
        recorded, tried = _load_model(source), {}
    model = _changed(recorded, changes)
    if save is not None:
        write_text(save, to_toml(model))
    result = _describe_model(model, tried)
    text: list[str | Grid] = [model_table(result)]
    if trace is not None and model is recorded:
        draws = [generate(model, seed=model.seed + k) for k in counted("drawing traces", range(options["draws"]))]
        closeness = _closeness(trace, draws, scenario, slo, attainment)
        result, text = replace(result, closeness=closeness), [*text, *closeness_table(closeness).parts]
    if output is not None:
        with stage(f"drawing {output}"):
            drawn = generate(model, seed=options["seed"])
            account = convert_trace(drawn, place_of(output), to=options["to"])
        print(drawn.account, account, sep="\n", file=sys.stderr)
        print_notes(account.warnings)
        result = replace(result, drawn=str(drawn.account))
    publish_beside(output, asdict(result), Text(text), json)


def check_trace_outputs(source: str, outputs: Mapping[str, Path | None], to: str | None) -> None:
    """Refuse the outputs that `check_outputs` refuses, an unknown format, and a trace and its JSON both on stdout.

    Parameters
    ----------
    outputs : files by option; --output is the trace, --json the answer.
    """
    from planner.traces.export.export_formats import find_target

    check_outputs(outputs, source)
    output, json = outputs["--output"], outputs["--json"]
    if output is not None:
        find_target(to, place_of(output))
    if str(output) == str(json) == "-":
        raise UsageError("the trace and --json both to -: stdout takes one of them; give a name for the other")


def place_of(path: Path) -> Path:
    """Return the path of an output; - is stdout."""
    return STDOUT if str(path) == "-" else path


def publish_beside(output: Path | None, value: Any, text: Text | str, json: Path | None) -> None:
    """Print the table, to stderr if the trace is on stdout, and write the JSON."""
    with redirect_stdout(sys.stderr if str(output) == "-" else sys.stdout):
        publish(value, text, json)


def _read(source: str, reading: Reading, lengths: Path | None = None, *, needs_outputs: bool = True) -> Trace:
    """Read a trace, print its account, and return it; one without outputs only if it need not have any."""
    with stage(f"reading {source}"):
        if lengths is not None:
            from planner.measured.logged_arrivals import with_lengths

            trace = with_lengths(source, lengths)
        else:
            read = partial(read_trace, source, format=reading.spec, on_bad_rows=reading.on_bad_rows)
            try:
                trace = read()
            except NoOutputsError:
                if needs_outputs:
                    raise
                trace = without_outputs(read(has_outputs=False))
    print(trace.account, file=sys.stderr)
    print_notes(trace.account.notes)
    return trace


def _load_model(source: str) -> Model:
    """Read a model from its file or by a sample's name; a hand-written workload is fitted, so that it can change."""
    from planner.catalog.catalog_files import data_dir
    from planner.traces.fitting import fit_workload
    from planner.traces.synthesis.generate import generate, read_workload, sample_names

    known = source in sample_names()
    if not known and not source.endswith(".toml"):
        raise UsageError(f"{source}: is no workload; must be a TOML file, or one of {', '.join(sample_names())}; to "
                         f"fit a model to a trace, give --fit")
    model = read_workload(data_dir("workloads") / f"{source}.toml" if known else Path(source))
    if isinstance(model, Model):
        return model
    return replace(fit_workload(generate(model, seed=None), seed=model.seed).model, name=model.name,
                   meaning=model.meaning)


def _changed(model: Model, changes: Mapping[str, Any]) -> Model:
    """Apply what-ifs: the mix and the lengths first, then added tenants, then rates, length and crowds."""
    from planner.traces.synthesis import changes as what_if

    if changes["mix"]:
        model = what_if.mixed(model, _factors("--mix", changes["mix"]))
    if changes["scale_input"] is not None or changes["scale_output"] is not None:
        model = what_if.with_lengths(model, input_factor=_or_one(changes["scale_input"]),
                                     output_factor=_or_one(changes["scale_output"]))
    for text in changes["add_tenant"] or ():
        name, _, rest = text.partition("=")
        other, _, rate = rest.partition("@")
        if not name or not other:
            raise UsageError(f"--add-tenant {text}: must be NAME=MODEL or NAME=MODEL@RATE, as in 'search=chat@2.5'")
        model = what_if.with_tenant(model, name, _load_model(other), _number("--add-tenant", rate) if rate else None)
    if changes["grow"] is not None:
        model = what_if.grown(model, changes["grow"])
    if changes["request_rate"] is not None:
        model = what_if.at_rate(model, changes["request_rate"])
    if changes["duration"] is not None:
        model = what_if.lasting(model, changes["duration"])
    for text in changes["flash"] or ():
        found = _factors("--flash", text)
        if set(found) != {"at", "lasts", "times"}:
            raise UsageError(f"--flash {text}: must be at=SECONDS,lasts=SECONDS,times=FACTOR")
        model = what_if.with_flash(model, at_s=found["at"], lasts_s=found["lasts"], times=found["times"])
    return model


def _or_one(value: float | None) -> float:
    return 1.0 if value is None else value


def _factors(option: str, text: str) -> dict[str, float]:
    """Read 'name=number,name=number'."""
    factors = {}
    for part in text.split(","):
        name, separator, number = part.partition("=")
        if not separator or not name.strip() or name.strip() in factors:
            raise UsageError(f"{option} {text}: must be NAME=NUMBER with commas between, each name once")
        factors[name.strip()] = _number(option, number)
    return factors


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{option}: {text!r} is no number") from None


def _describe_model(model: Model, tried: Mapping[str, Sequence[Any]]) -> ModelAnswer:
    tenants = [{
        "name": tenant.name, "rate_per_s": tenant.arrivals.rate_per_s, "process": tenant.arrivals.process,
        "num_epochs": len(tenant.epochs),
        "kinds": {name: share for name, share in _mean_shares(tenant).items() if share},
        "tried": [{"process": each.process.process, "deviation": each.deviation,
                   "num_numbers": each.process.num_numbers} for each in tried.get(tenant.name, ())],
    } for tenant in model.tenants]
    return ModelAnswer(name=model.name, meaning=model.meaning, source=model.source, duration_s=model.duration_s,
                       rate_per_s=model.rate_per_s, num_numbers=model.num_numbers, tenants=tuple(tenants))


def _mean_shares(tenant: Any) -> dict[str, float]:
    """Return the kinds' shares, epochs counted alike."""
    shares: dict[str, float] = {}
    for epoch in tenant.epochs:
        for kind in epoch.kinds:
            shares[kind.kind] = shares.get(kind.kind, 0.0) + kind.share / len(tenant.epochs)
    return shares


def _closeness(trace: Trace, draws: Sequence[Trace], scenario: Scenario, slo: str | None,
               attainment: float) -> dict[str, Any]:
    """Compare statistics, and also predictions if a deployment is given."""
    from planner.planning.closeness import compare_predictions, compare_statistics
    from planner.settings.objectives import parse_objectives

    closeness: dict[str, Any] = {"statistics": compare_statistics(trace, draws)}
    if scenario != Scenario():
        objectives = None if slo is None else parse_objectives(slo, attainment)
        closeness["predictions"] = compare_predictions(trace, draws, scenario, objectives)
    elif slo is not None:
        raise UsageError("--slo: is of predictions, which need a deployment; give --model and --gpu too")
    return closeness


def print_notes(notes: Sequence[str]) -> None:
    """Print notes to stderr."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
