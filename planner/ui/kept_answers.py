"""Answers that are looked for beside their page: each states its question, and is stale once the page asks another."""

import pickle
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import streamlit as st

from planner.catalog.gpu_label import gpu_label
from planner.errors import PlannerError
from planner.planning.study import Study
from planner.report.difference_words import setting_label, setting_text
from planner.settings.scenario import Scenario, given_options
from planner.traces import Trace
from planner.ui.kept_replays import study_key
from planner.ui.own_profiles import portable
from planner.ui.waiting import finished, watch
from planner.ui.words import log_words, plain
from planner.ui.work import Job, Task, start

LOOK_S, DRAW_S = 0.25, 0.5  # between two looks at a search; the second if a look draws the result so far
ONE_REPLICAS, HOW_MANY = ("gpu", "tensor_parallel_size"), ("data_parallel_size", "prefill_replicas")  # for fleets
SoFar = Callable[[Any, Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The question of a page.

    Parameters
    ----------
    words : the form's values and the sidebar's, by name, as text.
    key : of all that the answer depends on.
    """

    words: Mapping[str, str]
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSearch:
    """A search under way, with its question and the page's values for drawing the answer."""

    job: Job
    question: Question
    about: Any
    began_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAnswer:
    """An answer that was found.

    Parameters
    ----------
    question : that it answers.
    about : the page's values for drawing it.
    content : it, pickled.
    cut : why it covers only a part, as after a stop; None if it is whole.
    """

    question: Question
    about: Any
    content: bytes
    cut: str | None

    @property
    def value(self) -> Any:
        """The answer itself."""
        return pickle.loads(self.content)


def question_of(trace: Trace, study: Study, form: Mapping[str, Any]) -> Question:
    """Return a page's question about a trace and a study.

    Parameters
    ----------
    form : values of the page's own widgets that the answer depends on, by their names in words; None and False leave a
        value out of the words.
    """
    given = {"trace": trace.source, **given_options(portable(study).scenario)}
    own = {name: _text(value) for name, value in form.items() if value is not None and value is not False}
    words = own | {setting_label(name): _value_words(name, value) for name, value in given.items()}
    key = repr((study_key(trace, study), sorted((name, repr(value)) for name, value in form.items())))
    return Question(words=words, key=key)


def _value_words(name: str, value: Any) -> str:
    if name == "gpu":
        return gpu_label(str(value))
    return log_words(str(value)) if name == "trace" else setting_text(value)


def question_of_fleets(trace: Trace, study: Study, form: Mapping[str, Any]) -> Question:
    """Return the question of a page that chooses the GPUs and their number itself; otherwise as `question_of`."""
    chosen = ONE_REPLICAS if study.scenario.data_parallel_attention else (*ONE_REPLICAS, *HOW_MANY)
    usual: dict[str, Any] = {f.name: f.default for f in fields(Scenario) if f.name in chosen}
    return question_of(trace, replace(study, scenario=replace(study.scenario, **usual)), form)


def search(name: str, question: Question, about: Any, task: Task, *args: Any, total: int = 0) -> None:
    """Start to look for an answer, in place of an earlier search of that name; `total` as for `work.start`."""
    earlier: RunningSearch | None = st.session_state.get(_running(name))
    if earlier is not None:
        earlier.job.state.stop.set()
    st.session_state.pop(_failed(name), None)
    st.session_state[_running(name)] = RunningSearch(job=start(task, *args, total=total), question=question,
                                                     about=about, began_s=time.monotonic())


def keep(name: str, question: Question, about: Any, value: Any) -> None:
    """Keep an answer that needs no search."""
    st.session_state[_found(name)] = KeptAnswer(question=question, about=about, content=pickle.dumps(value), cut=None)


def answer(name: str, question: Question, said: str, *, keeps_stale: bool = True,
           so_far: SoFar | None = None) -> KeptAnswer | None:
    """Draw how far a search is, why it failed, or whether the answer is stale; return the answer, None without one.

    Parameters
    ----------
    question : that the page asks now.
    said : the work of the search, or the name of the parts that it counts.
    keeps_stale : whether the question is stated, and an answer to another one is shown with its changes.
    so_far : draws the result so far in place of an earlier answer; called with it and the page's values for drawing the
        answer.
    """
    running: RunningSearch | None = st.session_state.get(_running(name))
    if running is not None and running.job.state.is_over.is_set():
        del st.session_state[_running(name)]
        _keep(name, running)
        running = None
    if running is not None:
        st.fragment(run_every=LOOK_S if so_far is None else DRAW_S)(_under_way)(running, question, said, so_far)
        if so_far is not None:
            return None
    if failed := st.session_state.get(_failed(name)):
        st.error(failed, icon=":material/error:")
    found: KeptAnswer | None = st.session_state.get(_found(name))
    if not keeps_stale:
        return found if found is not None and found.question.key == question.key else None
    if found is not None:
        _state(found.question, question)
    return found


def _under_way(running: RunningSearch, question: Question, said: str, so_far: SoFar | None) -> None:
    """Draw how far a search is, and the result so far."""
    watch(running.job, running.began_s, said)
    content = running.job.state.content
    if so_far is not None and content is not None:
        _state(running.question, question)
        so_far(pickle.loads(content), running.about)


def is_asked(name: str) -> bool:
    """Tell whether there is a search, an answer or a failure of that name."""
    return any(key in st.session_state for key in (_running(name), _found(name), _failed(name)))


def _keep(name: str, over: RunningSearch) -> None:
    """Keep the answer of a search, or why it has none."""
    try:
        content = finished(over.job)
    except PlannerError as error:
        st.session_state[_failed(name)] = str(error)
        return
    state = over.job.state
    parts = f": {state.num_done:,} of {state.total:,} were done" if state.total else " before the rest was known"
    cut = state.error or (None if state.is_whole else f"Stopped{parts}.")
    st.session_state[_found(name)] = KeptAnswer(question=over.question, about=over.about, content=content, cut=cut)


def _state(asked: Question, question: Question) -> None:
    """Write the question of an answer, and how it differs from the page's present question."""
    words, now = asked.words, question.words
    st.caption(plain("Answer for " + ", ".join(f"{name} {value}" for name, value in words.items()) + "."))
    if asked.key == question.key:
        return
    changes = [f"{name} {words.get(name, 'not set')} (now {now.get(name, 'not set')})"
               for name in dict.fromkeys([*words, *now]) if words.get(name) != now.get(name)]
    st.warning(plain(f"This answer is for other settings: {', '.join(changes) or 'a file has changed since'}. Search "
                     f"again for the current settings."), icon=":material/history:")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _running(name: str) -> str:
    return f"running_{name}"


def _found(name: str) -> str:
    return f"found_{name}"


def _failed(name: str) -> str:
    return f"failed_{name}"
