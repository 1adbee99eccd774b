"""The actions of the commands: read, replay, print and write."""

import gc
import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TextIO

from planner.commands.outputs import check_outputs, keep_other_report, keep_other_result
from planner.errors import UsageError
from planner.files.writing import append_text, write_text
from planner.loop.state.engine_settings import Recording
from planner.planning.comparison import compare_studies, explain_outcome
from planner.planning.search_options import Choices, Rollouts, Search
from planner.planning.study import Study, command_line, read_study
from planner.progress import stage
from planner.replays.result_tables import ReplayResult, check_table_path, write_table
from planner.replays.scaling_record import events_table
from planner.report.comparison_words import most_different, verdict_words
from planner.report.summary_tables import comparison_table, explanation_table, summary_table
from planner.report.text import Text
from planner.report.verdict_line import first_words
from planner.report.verdicts import missed_in, missed_lines
from planner.results.saved import save_result, to_json
from planner.results.summary_answer import Summary
from planner.results.timeline import check_timeline_path, write_timeline
from planner.run import replay as run_scenario
from planner.settings.format_spec import Reading
from planner.settings.objectives import given_objectives, share_of_nothing
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.shaping.client_load import NAME, read_load

# Modules stay. To search them for garbage, now and when Python exits, would take a fifth of a short command's time.
gc.freeze()
gc.enable()

UI_OPTIONS = ("--browser.gatherUsageStats=false", "--server.maxUploadSize=200", "--client.toolbarMode=viewer",
              "--client.showErrorDetails=none", "--server.fileWatcherType=none",
              "--theme.light.textColor=#0d1117",  # dark enough that its shade for captions can be read
              "--theme.light.primaryColor=#0072B2", "--theme.dark.primaryColor=#0072B2",
              "--theme.dark.sidebar.primaryColor=#56B4E9")  # of a slider's number, on dark

OnBadRows = Literal["error", "drop"]


def replay(source: str, scenario: Scenario, slo: str | None, attainment: float | None, reading: Reading,
           json: Path | None, tables: Mapping[str, Path | None], timeline: Path | None, save: Path | None,
           explain: bool, ignore_start_refusal: bool, overwrite: bool = False) -> bool:
    """Replay one scenario, print its summary and write its tables.

    False if an objective is missed, if no request is completed, or if the engine would not start and this is not
    ignored.
    """
    objectives = given_objectives(slo, attainment, may_be_own=True)
    check_outputs({"--json": json, "--timeline": timeline, **{f"--{name.replace('_', '-')}": path
                                                               for name, path in tables.items()}}, source, save)
    study = Study(name="replay", trace=source, format=reading.spec, scenario=scenario, objectives=objectives)
    is_dropping = reading.on_bad_rows != "error"
    command = command_line(study, options={"on_bad_rows": reading.on_bad_rows} if is_dropping else {})
    if save is not None and not overwrite:
        keep_other_result(save, command)
    if timeline is not None:
        check_timeline_path(timeline)
    for path in tables.values():
        if path is not None:
            check_table_path(path)
    if tables["scale_events"] is not None and scenario.autoscale is None and scenario.fleet is None:
        raise UsageError(f"--scale-events {tables['scale_events']}: needs --autoscale, or pools with autoscale")
    recording = Recording(
        steps=tables["steps"] is not None or timeline is not None or save is not None or explain,
        schedule=tables["schedule"] is not None or tables["preemptions"] is not None,
    )
    trace = _read(source, scenario, reading.spec, reading.on_bad_rows)
    outcome = run_scenario(trace, scenario, slo=objectives, recording=recording)
    if attainment is not None and outcome.summary.figures.slo_attainment is None:
        raise share_of_nothing(attainment)
    explanation = explain_outcome(trace, scenario, outcome, slo=objectives) if explain else None
    summary = replace(outcome.summary, explanation=explanation, replay_command=command)
    refusal = summary.would_not_start
    for name, path in tables.items():
        if path is not None:
            write_table(_table(outcome.result, name), path)
    if timeline is not None:
        write_timeline(outcome.result, timeline)
    if save is not None:
        summary = summary.noted((), [save_result(outcome.result, summary, save)])
    text = [*summary_table(summary).parts]
    if explanation is not None:
        text += explanation_table({"": explanation}).parts
    publish(summary, Text(text), json,
            [note for note in summary.notes if note != refusal])  # the table begins with it
    starts = refusal is None or ignore_start_refusal
    return _keeps_objectives(summary) and starts and summary.figures.completed > 0


def _keeps_objectives(summary: Summary) -> bool:
    """Tell whether no objective is missed; say on stderr which are, and by how much."""
    missed = missed_in(summary)
    if missed:
        print(f"missed: {missed}", file=sys.stderr)
    return not missed


def compare(sources: Sequence[str], choices: Mapping[str, Sequence[Any]], launched: Mapping[str, Any],
            axes: Sequence[str], slo: str | None, reading: Reading, explain: bool | None,
            every: bool, json: Path | None, save: Path | None, overwrite: bool) -> bool:
    """Replay what-ifs from files, or every combination of the listed options, and print them side by side.

    False if no what-if completes a request.
    """
    from planner.commands.grids import what_ifs

    check_outputs({"--json": json}, folder=save)
    are_files = all(source.endswith(".toml") for source in sources)
    if are_files:
        if slo is not None or reading.spec is not None or choices or axes:
            raise UsageError("options beside files: write them into the files, as in max_num_seqs = 256")
        studies = [read_study(Path(source)) for source in sources]
    elif len(sources) > 1:
        raise UsageError(f"{' '.join(sources)}: give one trace, or files that end in .toml alone")
    else:
        objectives = given_objectives(slo)
        studies = [Study(name=name, trace=sources[0], format=reading.spec, scenario=what_if, objectives=objectives,
                         notes=tuple(notes)) for name, (what_if, notes) in what_ifs(choices, axes, launched).items()]
    if save is not None and not overwrite:
        for study in studies:
            keep_other_result(save / study.name, command_line(study))
    comparison = compare_studies(studies, lambda study: _read(study.trace, study.scenario, study.format,
                                                              study.on_bad_rows if are_files else reading.on_bad_rows),
                                 explain=are_files if explain is None else explain, save=save)
    first = [f"{name}: {line}" for name, summary in comparison.items() for line in first_words(summary)]
    values = {name: summary.values_by_key for name, summary in comparison.items()}
    shown = None if every or len(comparison) < 2 else most_different(values)
    others = [] if shown is None else ["--all shows every figure, and the JSON has them"]
    rows = [] if shown == [] else comparison_table(values, shown).parts
    text = [*first, *verdict_words(comparison), *rows, *others,
            *missed_lines(comparison)]
    explanations = {name: summary.explanation for name, summary in comparison.items()
                    if summary.explanation is not None}
    if explanations:
        text += explanation_table(explanations).parts
    publish([{"name": name, **found} for name, found in values.items()], Text(text), json,
            _named_notes(comparison))
    return any(summary.figures.completed for summary in comparison.values())


def capacity(source: str, scenario: Scenario, slo: str, attainment: float, search: Search, reading: Reading,
             json: Path | None) -> bool:
    """Find the largest load within the objectives, print and write it; False if there is none."""
    from planner.planning.capacity import capacity as find_capacity
    from planner.settings.objectives import parse_objectives

    check_outputs({"--json": json})
    objectives = parse_objectives(slo, attainment)
    trace = _read_searched(source, scenario, reading)
    answer = find_capacity(trace, scenario, objectives, replace(search, seed=scenario.seed or 0))
    publish_answer(answer, json)
    return answer.feasible


def probe(source: str, scenario: Scenario, slo: str, attainment: float, results: str, script: Path | None,
          reading: Reading, json: Path | None) -> None:
    """Print the benchmarks that test a capacity, with their expected numbers; write them as a script."""
    from planner.planning.probe import probe as find_benchmarks
    from planner.report.probe_table import probe_script
    from planner.settings.objectives import parse_objectives

    check_outputs({"--json": json, "--script": script})
    if json is not None and json.resolve() == Path(results).resolve():
        raise UsageError(f"--json {json}: the benchmarks append their results to this file; give another name, or "
                         f"--results")
    objectives = parse_objectives(slo, attainment)
    answer = find_benchmarks(_read_searched(source, scenario, reading), scenario, objectives, results)
    if script is not None:
        write_text(script, probe_script(answer))
    publish_answer(answer, json)


def size(source: str, scenario: Scenario, slo: str, attainment: float, choices: Choices, reading: Reading,
         json: Path | None, write: str | None) -> bool:
    """Find the cheapest fleet for a load, print it beside the others and write it; False if there is none."""
    from planner.deployment.shaped_load import shape_load
    from planner.planning.fleets import check_prices
    from planner.planning.sizing import size as find_fleet
    from planner.planning.write_size import autoscale_of, fleet_manifest, workload_of, write_target
    from planner.settings.objectives import parse_objectives

    kind, path = (None, None) if write is None else write_target(write)
    check_outputs({"--json": json, "--write": path})
    if (rules := autoscale_of(kind, scenario.autoscale)) is not None:
        scenario = replace(scenario, autoscale=None)  # the fleet is sized for the peak, and written with the rules
    if write is not None and scenario.fleet is not None:
        raise UsageError(f"--write {write}: writes replicas of one kind, and --fleet {scenario.fleet} has two; leave "
                         f"--write out")
    missing = [f"--{name}" for name in ("gpu", "model") if scenario.fleet is None and getattr(scenario, name) is None]
    if missing:
        raise UsageError(f"{' and '.join(missing)} must be given; --gpu takes a list, as in 'h100-sxm,h200-sxm'")
    if scenario.data_parallel_size > 1 and not scenario.data_parallel_attention:
        raise UsageError(f"--data-parallel-size {scenario.data_parallel_size}: the number of replicas is looked for; "
                         f"leave it out (over a launch command's give 1), or give --data-parallel-attention, whose "
                         f"ranks it is the number of")
    formats = [None] if scenario.quantization is None else scenario.quantization.split(",")
    choices = replace(choices, gpus=(scenario.gpu or "").split(","), quantizations=formats)
    check_prices(choices)
    objectives = parse_objectives(slo, attainment)
    trace = _read_searched(source, scenario, reading)
    answer = find_fleet(trace, scenario, objectives, choices)
    publish_answer(answer, json)
    if kind is not None and path is not None and answer.cheapest is not None:
        write_text(path, fleet_manifest(kind, answer.cheapest, scenario.engine_version, rules,
                                        workload_of(shape_load(scenario, trace), answer)))
    return answer.feasible


def share(cluster: Path, choices: Choices, minimize: str, reading: Reading, json: Path | None) -> bool:
    """Find a fleet for each deployment of a cluster, print and write them; False if the GPUs do not suffice."""
    from planner.planning.cluster_share import share as find_share

    check_outputs({"--json": json})
    answer = find_share(cluster, choices, minimize, reading)
    publish_answer(answer, json)
    return answer.feasible


def rollouts(source: str, scenario: Scenario, asked: Rollouts, choices: Choices, reading: Reading,
             json: Path | None) -> bool:
    """Find the generators for a trainer, print the step and other ways to run it; False if none keep it busy."""
    from planner.planning.rollouts import rollouts as find_generators

    check_outputs({"--json": json})
    answer = find_generators(_read_searched(source, scenario, reading), scenario, asked, choices)
    publish_answer(answer, json)
    return answer.feasible or asked.generators is not None


def check(targets: Path, baseline: Path | None, update_baseline: bool, junit: Path | None, markdown: Path | None,
          json: Path | None) -> bool:
    """Judge a targets file, print and write the verdicts; False if a target is missed."""
    from planner.planning.gate import check as judge_targets
    from planner.report.gate_report import gate_junit, gate_markdown

    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    check_outputs({"--baseline": baseline if update_baseline else None, "--junit": junit, "--markdown": markdown,
                   "--json": json, "GITHUB_STEP_SUMMARY": Path(summary) if summary else None}, targets)
    result = judge_targets(targets, baseline=baseline, update=update_baseline)
    for path, make in ((junit, gate_junit), (markdown, gate_markdown)):
        if path is not None:
            write_text(path, make(result))
    if summary:
        append_text(Path(summary), gate_markdown(result))
    publish_answer(result, json)
    verdicts = [row.verdict for row in result.checks]
    if "no baseline" in verdicts and not {"missed", "regressed"} & set(verdicts):
        raise UsageError(f"--baseline {baseline}: lacks metrics that have max_regression; record them with "
                         f"--update-baseline")
    return result.met


def sweep(source: str, scenario: Scenario, options: Mapping[str, Any], output: Path, optimize: bool, backend: str,
          address: str | None, jobs: int, json: Path | None) -> bool:
    """Replay a grid, or look for its front, print and write its rows; False if no configuration keeps the limits."""
    from planner.commands.grids import sweep_plan
    from planner.planning.optimize import answer_sweep

    check_outputs({"--output": output, "--json": json})
    asked = sweep_plan(source, scenario, options)
    result = answer_sweep(asked, output, optimizes=optimize, jobs=jobs, backend=backend, address=address)
    publish_answer(result, json)
    return result.optimum is None or result.optimum.best is not None


def report(results: Sequence[Path], output: Path, llmd: Path | None, overwrite: bool) -> None:
    """Write the report of saved replays, or of an answer, and one of the replays as a Benchmark Report."""
    from planner.report.llmd import check_llmd_path, write_llmd_report
    from planner.report.report_source import SavedAnswer, load_sources
    from planner.report.written import beside, check_report_path, write_report

    check_report_path(output)
    if llmd is not None:
        check_llmd_path(llmd)
    check_outputs({"--output": output, "the summary of --output": beside(output), "--llmd": llmd})
    source = load_sources(results)
    if llmd is not None and (isinstance(source, SavedAnswer) or len(source) != 1):
        raise UsageError(f"--llmd {llmd}: a Benchmark Report is of one saved replay; give one")
    command = shlex.join(["planner", "report", *(os.path.relpath(path, output.parent) for path in results)])
    if not overwrite:
        keep_other_report(output, command)
    if llmd is not None and not isinstance(source, SavedAnswer):
        write_llmd_report(source[0], llmd)
    with stage(f"drawing {output}"):
        written = write_report(source, output, command)
    for path in [*written, *([llmd] if llmd is not None else [])]:
        print(path)


def ui(port: int, address: str, studies: Path | None, read_only: bool, sign_in: Path | None,
       user_header: str | None, watch: Path | None) -> None:
    """Serve the dashboard until it is stopped."""
    if importlib.util.find_spec("streamlit") is None:
        raise UsageError("planner ui: needs streamlit; pip install 'llm-serving-planner[ui]'")
    from planner.ui.hosting import environment

    os.environ |= environment(studies, read_only, sign_in, user_header, watch)
    secrets = [] if sign_in is None else [f"--secrets.files={sign_in.resolve()}"]
    page = Path(__file__).parents[1] / "ui" / "app.py"
    os.execv(sys.executable, [sys.executable, "-m", "streamlit", "run", str(page), *UI_OPTIONS,
                              f"--server.port={port}", f"--server.address={address}", *secrets])


def _read(source: str, scenario: Scenario, format: str | None, on_bad_rows: OnBadRows) -> Trace:
    with stage(f"reading {source}"):
        trace = read_load(source, scenario, format, on_bad_rows)
    print(fitted(Text([str(trace.account)]), sys.stderr), file=sys.stderr)
    return trace


def _read_searched(source: str, scenario: Scenario, reading: Reading) -> Trace:
    """Read the trace of a search; the seed applies to the load `random`, and otherwise to the search's draws alone."""
    return _read(source, scenario if source == NAME else replace(scenario, seed=None), reading.spec,
                 reading.on_bad_rows)


def _print_notes(notes: Iterable[str]) -> None:
    """Print each note once to stderr."""
    for note in dict.fromkeys(notes):
        print(fitted(Text([f"note: {note}"]), sys.stderr), file=sys.stderr)


def _named_notes(comparison: Mapping[str, Summary]) -> list[str]:
    """Return the notes of what-ifs, with their names if not all of them have a note."""
    names: dict[str, list[str]] = {}
    for name, summary in comparison.items():
        for note in dict.fromkeys(summary.notes):
            names.setdefault(note, []).append(name)
    return [note if len(owners) == len(comparison) or (len(owners) == 1 and note.startswith(f"{owners[0]}: ")) else
            f"{', '.join(owners)}: {note}" for note, owners in names.items()]


def _table(result: ReplayResult, name: str) -> Any:
    makers: dict[str, Callable[[], Any]] = {
        "attempts": result.attempts_table,
        "requests": result.requests_table,
        "steps": result.steps_table,
        "schedule": result.schedule_table,
        "preemptions": result.preemptions_table,
        "scale_events": lambda: events_table(() if result.scaling is None else result.scaling.events),
    }
    return makers[name]()


def publish(value: Any, text: Text | str, json: Path | None, notes: Iterable[str] = ()) -> None:
    """Print the table, and write the JSON; with `--json -` the JSON alone goes to stdout. Notes follow on stderr."""
    is_alone = json is not None and str(json) == "-"
    if is_alone:
        sys.stdout.write(to_json(value))
    else:
        print(fitted(Text([text]) if isinstance(text, str) else text, sys.stdout))
    sys.stdout.flush()
    _print_notes(notes)
    if json is not None and not is_alone:
        write_text(json, to_json(value))


def publish_answer(answer: Any, json: Path | None) -> None:
    """Print an answer, and write it as JSON; its notes follow on stderr."""
    from planner.report.shown import text_of

    publish(answer, text_of(answer), json, answer.notes)


def fitted(text: Text, stream: TextIO) -> str:
    """Return text with lines that a terminal shows without a break; without a change if the stream is no terminal."""
    width = shutil.get_terminal_size().columns if stream.isatty() else None
    return "\n".join(text.lines(width))
