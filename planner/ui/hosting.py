"""A dashboard for a team: the file of studies, the users' names, sign-in and the read-only mode, all off by default.

`planner ui` sets the environment variables below from its options.
"""

import importlib.util
import os
import re
from collections.abc import Mapping
from pathlib import Path

import streamlit as st

from planner.errors import UsageError
from planner.files.nested import parse_toml
from planner.ui.study_store import StudyStore

STUDIES, READ_ONLY, SIGN_IN, HEADER, WATCH = (f"PLANNER_UI_{name}" for name in (
    "STUDIES", "READ_ONLY", "SIGN_IN", "USER_HEADER", "WATCH"))

KEYS = ("redirect_uri", "cookie_secret")  # of [auth]
CLIENT_KEYS = ("client_id", "client_secret", "server_metadata_url")  # of [auth], or of each provider in it


def environment(studies: Path | None, read_only: bool, sign_in: Path | None, user_header: str | None,
                watch: Path | None) -> dict[str, str]:
    """Return the environment of a server with these options, once they are checked.

    Raises
    ------
    UsageError : options exclude each other, or the file of the sign-in lacks a key.
    PlannerError : the file of studies is damaged, or cannot be written.
    """
    if sign_in is not None and user_header is not None:
        raise UsageError("--sign-in and --user-header: exclude each other; give one")
    if sign_in is not None:
        _check_sign_in(sign_in)
    if user_header is not None and not re.fullmatch(r"[A-Za-z0-9-]+", user_header):
        raise UsageError(f"--user-header {user_header!r}: must be the name of a header, as X-Forwarded-Email")
    if studies is not None:
        StudyStore(studies)
    elif read_only:
        raise UsageError("--read-only: is for saved studies; add --studies FILE")
    values = {STUDIES: studies and str(studies.resolve()), READ_ONLY: read_only and "1", SIGN_IN: sign_in and "1",
              HEADER: user_header, WATCH: watch and str(watch.resolve())}
    return {name: str(value or "") for name, value in values.items()}


def _check_sign_in(path: Path) -> None:
    """Raise UsageError if a file has no whole [auth], or if the package for it is missing."""
    if importlib.util.find_spec("authlib") is None:
        raise UsageError("--sign-in: needs Authlib; pip install 'llm-serving-planner[ui]'")
    try:
        auth = parse_toml(path.read_text(encoding="utf-8")).get("auth", {})
    except (OSError, ValueError) as error:
        raise UsageError(f"--sign-in {path}: cannot be read: {error}") from error
    providers = {name: value for name, value in auth.items() if isinstance(value, Mapping)} or {"": auth}
    missing = [*(key for key in KEYS if not auth.get(key)), *(
        f"{name}.{key}".strip(".") for name, values in providers.items() for key in CLIENT_KEYS if not values.get(key))]
    if missing:
        raise UsageError(f"--sign-in {path}: [auth] lacks {', '.join(missing)}; see docs/guides/share-with-a-team.md")


@st.cache_resource(show_spinner=False)  # type: ignore[untyped-decorator]
def _store(path: str) -> StudyStore:
    return StudyStore(Path(path))


def store() -> StudyStore | None:
    """Return the server's studies; None if it keeps none."""
    path = os.environ.get(STUDIES)
    studies: StudyStore | None = _store(path) if path else None
    return studies


def is_read_only() -> bool:
    """Whether studies can be opened only."""
    return bool(os.environ.get(READ_ONLY))


def user() -> str:
    """Return the user's name; empty on a server without sign-in.

    Raises
    ------
    UsageError : the proxy's header is missing.
    """
    if header := os.environ.get(HEADER):
        name = str(st.context.headers.get(header) or "").strip()
        if not name:
            raise UsageError(f"This server is reached through a proxy that signs users in: the header {header} is "
                             f"missing; open the proxy's address.")
        return name
    if os.environ.get(SIGN_IN):
        return next((str(st.user[key]) for key in ("email", "preferred_username", "name", "sub") if st.user.get(key)),
                    "")
    return ""


def is_admitted() -> bool:
    """Draw the user's name in the sidebar, or in place of the page how to sign in; tell whether the page is shown."""
    try:
        if os.environ.get(SIGN_IN) and not os.environ.get(HEADER) and not st.user.is_logged_in:
            _ask_to_sign_in()
            return False
        name = user()
    except UsageError as error:
        st.error(str(error), icon=":material/lock:")
        return False
    if name:
        with st.sidebar.container(horizontal=True, vertical_alignment="center"):
            st.text(name)
            if not os.environ.get(HEADER):
                st.button("Sign out", on_click=st.logout, type="tertiary", key="sign_out")
    return True


def _ask_to_sign_in() -> None:
    st.title("planner", anchor=False)
    st.write("Sign in to use this dashboard.")
    auth = st.secrets.get("auth", {})
    for provider in [name for name, value in auth.items() if isinstance(value, Mapping)] or [None]:
        st.button("Sign in" if provider is None else f"Sign in with {provider}", on_click=st.login, type="primary",
                  args=() if provider is None else (provider,), key=f"sign_in_{provider}")
