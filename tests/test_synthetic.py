"""Generated traces: the same for the same seed, valid, and shaped like what they imitate."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from planner.catalog.catalog_files import data_dir
from planner.errors import CatalogError, UnknownNameError, UsageError
from planner.schema import TRACE_COLUMNS
from planner.traces import read_trace
from planner.traces.shaping.description import describe
from planner.traces.synthesis import Model, Spec, generate, load_sample, read_spec, read_workload, sample_names

# name: requests/s, input p50/p95/p99, output p50/p95/p99 and variance over mean of counts in 1 s of what is imitated
IMITATED = {
    "chat": (5.53, (1020, 4083, 4142), (129, 451, 601), 1.39),
    "code": (2.57, (1469, 7303, 7436), (13, 90, 252), 13.18),
}
LENGTHS = {  # of traces that have no common clock
    "agents": ((27214, 54026, 63204), (106, 846, 1763)),
    "batch": ((2730, 3813, 3933), (167, 736, 3271)),
    "rag": ((3140, 4425, 5438), (234, 670, 891)),
}


def spec_of(name: str) -> Spec:
    return read_spec(data_dir("workloads") / f"{name}.toml")


def test_samples_are_read_by_name() -> None:
    assert sample_names() == ["agents", "batch", "chat", "code", "fitted-chat", "fitted-code", "fitted-long-chat",
                              "long-context", "rag", "rollouts"]
    assert read_trace("chat").requests.equals(load_sample("chat").requests)
    assert read_trace("chat", limit=10).num_requests == 10
    with pytest.raises(UnknownNameError, match="unknown sample trace 'chatt'; did you mean 'chat'"):
        load_sample("chatt")


@pytest.mark.parametrize("name", sample_names())
def test_samples_are_the_same_every_time_and_keep_the_bounds(name: str) -> None:
    trace, again = load_sample(name), load_sample(name)
    assert trace.requests.equals(again.requests)
    assert trace.sha256 == again.sha256
    assert trace.requests["arrival_s"].is_sorted()
    assert trace.requests["request_id"].to_list() == list(range(trace.num_requests))
    for column in TRACE_COLUMNS:
        if column.name in trace.requests.columns and column.minimum is not None and column.maximum is not None:
            assert trace.requests[column.name].is_between(column.minimum, column.maximum).all()


@pytest.mark.parametrize("name", LENGTHS)
def test_samples_resemble_the_published_lengths(name: str) -> None:
    requests = load_sample(name).requests
    for column, wanted in zip(("input_tokens", "output_tokens"), LENGTHS[name], strict=True):
        found = np.percentile(requests[column].to_numpy(), (50, 95, 99))
        assert found == pytest.approx(wanted, rel=0.15)


def test_retrieved_passages_are_shared() -> None:
    trace = load_sample("rag")
    sharing = describe(trace).sharing
    assert sharing is not None
    assert sharing["infinite_hit_rate"] == pytest.approx(0.58, abs=0.02)
    assert trace.requests["session_id"].n_unique() == trace.num_requests


def test_agents_send_their_conversation_again_and_batches_have_no_bursts() -> None:
    agents = load_sample("agents").requests
    assert agents.height / agents["session_id"].n_unique() > 20
    counts = np.bincount(load_sample("batch").requests["arrival_s"].to_numpy().astype(np.int64))
    assert counts.var() / counts.mean() == pytest.approx(1.0, abs=0.15)  # Poisson


@pytest.mark.parametrize("name", IMITATED)
def test_samples_resemble_the_published_statistics(name: str) -> None:
    rate_per_s, input_tokens, output_tokens, dispersion = IMITATED[name]
    trace = load_sample(name)
    arrival_s = trace.requests["arrival_s"].to_numpy()
    assert len(arrival_s) / 3600 == pytest.approx(rate_per_s, rel=0.05)
    counts = np.bincount(arrival_s.astype(np.int64))
    assert counts.var() / counts.mean() == pytest.approx(dispersion, rel=0.15)
    for column, wanted in (("input_tokens", input_tokens), ("output_tokens", output_tokens)):
        found = np.percentile(trace.requests[column].to_numpy(), (50, 95, 99))
        assert found == pytest.approx(wanted, rel=0.15)


def test_long_context_is_a_tree_of_prefixes() -> None:
    trace = load_sample("long-context")
    prefix, input_tokens = trace.prefix, trace.requests["input_tokens"].to_numpy()
    assert prefix is not None
    assert np.array_equal(np.diff(prefix.offsets), -(-input_tokens // prefix.block_tokens))
    block = np.arange(len(prefix.values)) - np.repeat(prefix.offsets[:-1], np.diff(prefix.offsets))
    inner = np.flatnonzero(block > 0)
    places = np.unique(np.stack((prefix.values, block)), axis=1).shape[1]
    parents = np.unique(np.stack((prefix.values[inner], prefix.values[inner - 1])), axis=1).shape[1]
    roots = len(np.unique(prefix.values[block == 0]))
    assert places == len(np.unique(prefix.values))  # an id stands at one place
    assert parents + roots == places  # and after one id: equal ids mean equal beginnings
    assert 0.5 < 1 - places / len(prefix.values) < 0.7
    assert 60_000 < np.percentile(input_tokens, 99) <= 100_000


def test_a_turn_repeats_the_whole_blocks_of_the_turn_before() -> None:
    trace = load_sample("long-context")
    prefix, tokens = trace.prefix, trace.requests["input_tokens"]
    assert prefix is not None
    last: dict[str, int] = {}
    followed = 0
    for row, session in enumerate(trace.requests["session_id"]):
        if session in last:
            before = last[session]
            whole = tokens[before] // prefix.block_tokens
            earlier, later = (prefix.values[prefix.offsets[at] :][:whole] for at in (before, row))
            assert np.array_equal(earlier, later)
            assert tokens[row] > tokens[before]
            followed += 1
        last[session] = row
    assert followed > 500


def test_another_seed_gives_another_trace() -> None:
    spec = spec_of("chat")
    other = generate(spec, seed=99)
    assert not other.requests.equals(load_sample("chat").requests)
    assert other.sha256 != load_sample("chat").sha256
    assert other.requests.equals(generate(dataclasses.replace(spec, seed=99), seed=None).requests)


def test_poisson_arrivals_are_poisson() -> None:
    """Without waves, bursts and clumps the counts' variance equals their mean and the gaps are exponential."""
    spec = spec_of("chat")
    plain = dataclasses.replace(spec.arrivals, wave_frac=0.0, burst_factor=1.0, gap_shape=1.0)
    arrival_s = generate(dataclasses.replace(spec, arrivals=plain), seed=5).requests["arrival_s"].to_numpy()
    counts, gaps_s = np.bincount(arrival_s.astype(np.int64)), np.diff(arrival_s)
    assert len(arrival_s) / 3600 == pytest.approx(5.53, rel=0.03)
    assert counts.var() / counts.mean() == pytest.approx(1.0, abs=0.08)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(1.0, abs=0.03)


BAD_SPECS = {
    "unknown-key": ("seed = 1", "sede = 1", "unknown key in the spec 'sede'; did you mean 'seed'?"),
    "missing-key": ("gap_shape = 0.9\n", "", "arrivals lacks gap_shape"),
    "negative": ("rate_per_s = 5.53", "rate_per_s = -1", "rate_per_s = -1; must be a number, finite and > 0"),
    "word": ("rate_per_s = 5.53", 'rate_per_s = "fast"', "rate_per_s = 'fast'; must be a number"),
    "wave": ("wave_frac = 0.15", "wave_frac = 1.5", "wave_frac = 1.5; must be >= 0 and < 1"),
    "lists": ("weights = [0.7, 0.3]", "weights = [1.0]", "must be lists of one length"),
    "seed": ("seed = 1", "seed = 1.5", "seed = 1.5; must be a whole number >= 0"),
    "syntax": ("seed = 1", "seed =", "Invalid value"),
}


@pytest.mark.parametrize(("text", "changed", "message"), BAD_SPECS.values(), ids=BAD_SPECS.keys())
def test_bad_specs_say_what_is_wrong(tmp_path: Path, text: str, changed: str, message: str) -> None:
    good = (data_dir("workloads") / "chat.toml").read_text()
    assert text in good
    path = tmp_path / "bad.toml"
    path.write_text(good.replace(text, changed))
    with pytest.raises(CatalogError) as error:
        read_spec(path)
    assert str(error.value).startswith(f"workload {path}: ")
    assert message in str(error.value)


def test_a_missing_spec_and_an_empty_trace_are_errors() -> None:
    with pytest.raises(CatalogError, match=r"workload nowhere\.toml: No such file"):
        read_spec(Path("nowhere.toml"))
    with pytest.raises(UsageError, match=r"no request in 0\.001 s; raise the duration or the rate"):
        generate(dataclasses.replace(spec_of("chat"), duration_s=0.001), seed=1)


@pytest.mark.parametrize(("name", "requests", "rate_per_s"), [
    ("fitted-chat", 19_366, 5.53), ("fitted-code", 8_819, 2.566), ("fitted-long-chat", 12_031, 3.4)])
def test_fitted_samples_name_their_source_and_resemble_it(name: str, requests: int, rate_per_s: float) -> None:
    model = read_workload(data_dir("workloads") / f"{name}.toml")
    assert isinstance(model, Model)
    assert "fitted to the" in model.source
    assert "sha256" in model.source
    trace = load_sample(name)
    assert trace.num_requests == pytest.approx(requests, rel=0.001)
    assert (trace.num_requests - 1) / trace.account.span_s == pytest.approx(rate_per_s, rel=0.005)
    with pytest.raises(CatalogError, match=r"is a fitted model; must be written by hand"):
        read_spec(data_dir("workloads") / f"{name}.toml")


BROKEN = {  # found by mutating both kinds of workloads
    "fraction-of-documents": ("long-context", "num_documents = 1500", "num_documents = 0.5", "must be a whole number"),
    "many-documents": ("long-context", "num_documents = 1500", "num_documents = 1e308", "must be a whole number"),
    "fraction-of-a-block": ("long-context", "block_tokens = 512", "block_tokens = 0.5", "must be a whole number"),
    "wide-sigma": ("long-context", "sigmas = [1.0, 0.9]", "sigmas = [1e300, 0.9]", "must be from 1e-09 to 1e+09"),
    "wide-think": ("long-context", "think_sigma = 1.0", "think_sigma = 1e8", "must be <= 20"),
    "many-requests": ("long-context", "rate_per_s = 0.8", "rate_per_s = 1e9", "must be <= 1e+09"),
    "long-prompts": ("fitted-code", "maximum_input_tokens = 7437", "maximum_input_tokens = 1e99",
                     "must be a whole number"),
    "no-kinds": ("fitted-code", 'kind = "alone"', 'kind = "alone"\nnew_token = 1', "did you mean 'new_tokens'"),
    "no-table": ("fitted-code", "[tenants.arrivals]", "[tenants.arrival]", "lacks process"),
    "far-start": ("fitted-code", "start_s = 0.0", "start_s = inf", "must be a number"),
}


@pytest.mark.parametrize(("name", "old", "new", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_workloads_are_refused_in_words(tmp_path: Path, name: str, old: str, new: str, message: str) -> None:
    good = (data_dir("workloads") / f"{name}.toml").read_text()
    assert old in good
    path = tmp_path / "broken.toml"
    path.write_text(good.replace(old, new))
    with pytest.raises(CatalogError, match=f"workload {path}: ") as error:
        read_workload(path)
    assert message in str(error.value)


def test_a_whole_exponent_of_popularity_works(tmp_path: Path) -> None:
    path = tmp_path / "whole.toml"
    path.write_text((data_dir("workloads") / "long-context.toml").read_text().replace("popularity = 0.6",
                                                                                     "popularity = 2"))
    assert generate(read_spec(path), seed=1).num_requests > 1000
