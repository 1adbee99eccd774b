"""Saved studies in the dashboard: saved from a page, opened by a link, compared, shared, apart from uploads."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from browsing import CHROMIUM, REASON, WAIT_MS, opened, settle, shoot
from pages import answered, linked, press, said, uploaded, uploader
from pages import opened as opened_page

from benchmarks.dashboard_server import served
from planner.errors import PlannerError
from planner.planning.capacity_answer import CapacityAnswer
from planner.report.report_source import answer_of
from planner.ui import hosting, own_profiles
from planner.ui.study_store import StudyFile, StudyStore, new_study

pytest.importorskip("streamlit")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
in_browser = pytest.mark.skipif(CHROMIUM is None, reason=REASON)
ROOT = Path(__file__).resolve().parents[2]
SECRET = b"arrival_s,input_tokens,output_tokens\n" + b"".join(b"%d,777,20\n" % k for k in range(40))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StudyStore:
    """The studies of pages that run in this process."""
    path = tmp_path / "studies.sqlite"
    monkeypatch.setenv(hosting.STUDIES, str(path))
    return StudyStore(path)


def saved(page: Any, name: str) -> Any:
    next(field for field in page.text_input if field.key == "study_name").set_value(name)
    press(page, "Save")
    assert not page.exception
    return page


def test_a_study_opens_with_its_settings_and_states_its_saved_answer(store: StudyStore) -> None:
    page = saved(opened_page("replay", gpu="l40s", rate_scale=3.0, max_num_seqs=32), "Three times the load")
    shown = {metric.label: metric.value for metric in page.metric}
    (row,) = store.studies()
    assert (row.name, row.page, row.user) == ("Three times the load", "replay", "")
    page = linked("replay", study=row.id)
    assert not page.exception
    assert page.session_state["max_num_seqs"] == 32
    assert {metric.label: metric.value for metric in page.metric} == shown
    heading = page.expander[0]
    assert "Three times the load" in heading.label
    assert "max_num_seqs" in heading.code[0].value or "32" in heading.code[0].value
    whole = store.study(row.id)
    assert whole is not None
    assert json.loads(whole.answer)["policy"]["max_num_seqs"] == 32


@pytest.mark.slow
def test_a_sweep_is_saved_and_shown_again(store: StudyStore) -> None:
    page = linked("explore", limit="300", axes="max_num_seqs=8,32")
    page = saved(answered(press(page, "Replay the grid"), "sweep"), "Two limits")
    (row,) = store.studies()
    assert (row.page, row.name) == ("explore", "Two limits")
    assert row.headline.endswith("of 2 configurations on the front")
    page = linked("explore", study=row.id)
    assert not page.exception
    assert "max_num_seqs" in page.expander[0].code[0].value
    assert page.text_area(key="axes").value == "max_num_seqs=8,32"


def test_settings_of_the_address_come_before_the_studys(store: StudyStore) -> None:
    """A link of an opened study whose settings were changed since."""
    saved(opened_page("replay", gpu="l40s", rate_scale=3.0), "base")
    (row,) = store.studies()
    page = linked("replay", study=row.id, limit="200", gpu="a100-sxm")
    assert (page.session_state["gpu"], page.session_state["rate_scale"]) == ("a100-sxm", 1.0)


def test_a_capacity_is_saved_as_its_command_writes_it(store: StudyStore) -> None:
    page = press(opened_page("capacity", replicates=0), "Find the capacity")
    page = saved(answered(page, "capacity"), "capacity")
    (row,) = store.studies()
    whole = store.study(row.id)
    assert whole is not None
    answer = answer_of(json.loads(whole.answer), "a").answer
    assert isinstance(answer, CapacityAnswer)
    assert f"{answer.capacity:.3g}"[:3] in row.headline.replace(",", "")
    page.number_input(key="tensor_parallel_size").set_value(2).run()
    assert "Save" not in [button.label for button in page.button]  # the answer is for other settings


def test_an_upload_is_seen_by_others_only_in_a_study(store: StudyStore) -> None:
    page = uploaded("workload", "secret.csv", SECRET)
    assert "secret.csv" in said(page)
    for stranger in (linked("workload", trace="your file"), linked("studies")):
        assert "secret" not in said(stranger)
        assert "777" not in said(stranger)
    page = uploaded("replay", "secret.csv", SECRET)
    assert "Everybody who opens the study gets secret\\.csv" in said(page)
    saved(page, "shared")
    (row,) = store.studies()
    other = linked("replay", study=row.id)
    assert {metric.label: metric.value for metric in other.metric}["Served"] == "all 40"
    assert "secret" not in said(linked("workload", trace="your file"))


def test_own_profiles_come_with_a_study(store: StudyStore) -> None:
    toml = (ROOT / "hardware_db" / "gpus" / "l40s.toml").read_text().replace('"l40s"', '"my-gpu"', 1)
    page = opened_page("catalog", limit=300)
    uploader(page, "GPU, TOML").upload("my-gpu.toml", toml.encode())
    press(page, "Check and add the GPU")
    assert not page.error
    (path,) = page.session_state[own_profiles.FOLDER].path.rglob("my-gpu.toml")
    identity = store_profile(store, path.read_bytes())
    other = linked("replay", study=identity)
    assert not other.exception
    assert other.session_state["gpu"] == "my-gpu"
    assert {metric.label: metric.value for metric in other.metric}["Served"] == "all 300"
    assert "has no such gpu" in linked("replay", gpu="my-gpu").error[0].value  # another session


def store_profile(store: StudyStore, toml: bytes) -> str:
    study = new_study(name="own", user="", page="replay", address="gpu=my-gpu&limit=300", headline="", answer="{}",
                      files=[StudyFile.of("gpu", "my-gpu", toml)])
    store.save(study)
    return study.id


def test_a_study_that_is_gone_is_said(store: StudyStore) -> None:
    page = linked("replay", study="gone-gone")
    assert "this server has no study 'gone\\-gone'; it may have been deleted" in page.error[0].value.replace("\\'", "'")


def test_a_server_without_a_file_saves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(hosting.STUDIES, raising=False)
    page = opened_page("replay")
    assert "Save" not in [button.label for button in page.button]
    assert "planner ui --studies" in linked("studies").info[0].value


def test_a_read_only_server_opens_and_exports_only(store: StudyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(opened_page("replay"), "kept")
    monkeypatch.setenv(hosting.READ_ONLY, "1")
    (row,) = store.studies()
    page = linked("replay", study=row.id)
    assert not page.exception
    assert "kept" in page.expander[0].label
    assert "Save" not in [button.label for button in page.button]
    page = linked("studies")
    assert [button.label for button in page.get("download_button")] == ["Export 1 study"]
    assert not {"Add the studies", "Yes, delete 0 studies"} & {button.label for button in page.button}


@pytest.mark.parametrize(("options", "words"), [
    ({"read_only": True}, "--read-only: is for saved studies; add --studies FILE"),
    ({"user_header": "X Email\r\n"}, "must be the name of a header"),
    ({"sign_in": "none.toml"}, "none.toml: cannot be read"),
    ({"sign_in": '[auth]\nredirect_uri = "a"\ncookie_secret = "b"\n[auth.own]\nclient_id = "c"\n'},
     r"\[auth\] lacks own.client_secret, own.server_metadata_url"),
    ({"sign_in": "", "user_header": "X-Email"}, "--sign-in and --user-header: exclude each other"),
    ({"studies": "no database, but a text of some length"}, "file is not a database")])
def test_options_that_cannot_be_served_end_the_start(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    for name in {"sign_in", "studies"} & set(options):
        path = tmp_path / "file"
        if options[name] != "none.toml":
            path.write_text(options[name])
        options = {**options, name: path if options[name] != "none.toml" else tmp_path / "none.toml"}
    with pytest.raises(PlannerError, match=words):
        hosting.environment(**{"studies": None, "read_only": False, "sign_in": None, "user_header": None, "watch": None,
                               **options})


@in_browser
def test_a_team_saves_opens_compares_and_deletes(browser: Any, tmp_path: Path) -> None:
    """Behind a proxy that names the users: without its header there is one sentence and nothing else."""
    ana, bo = ({"extra_http_headers": {"X-Forwarded-Email": f"{name}@example.com"}} for name in ("ana", "bo"))
    path = tmp_path / "studies.sqlite"
    with served("--studies", str(path), "--user-header", "X-Forwarded-Email") as (url, _):
        stranger = browser.new_context().new_page()
        stranger.set_default_timeout(WAIT_MS)
        stranger.goto(url)
        stranger.get_by_text("the header X-Forwarded-Email is missing").wait_for()
        assert stranger.get_by_test_id("stSidebarNav").count() == 0
        for rate in ("3.0", "6.0"):
            page = opened(browser, f"{url}/replay?limit=300&rate_scale={rate}&gpu=l40s", **ana)
            save(page, f"Load {rate}")
        link = page.get_by_test_id("stCode").last.inner_text().strip()
        assert {(study.name, study.user) for study in StudyStore(path).studies()} == {
            ("Load 3.0", "ana@example.com"), ("Load 6.0", "ana@example.com")}
        fresh = opened(browser, link, **bo)
        settle(fresh)
        fresh.get_by_text(re.compile("Study Load 6.0, .* by")).wait_for()
        assert "rate_scale=6.0" in fresh.url
        shoot(fresh, "study-opened")
        fresh.goto(f"{url}/studies")
        choose(fresh, 0)
        fresh.get_by_role("heading", name="Load 6.0").wait_for()
        assert fresh.get_by_role("button", name="Delete").is_disabled()  # another user's
        page.goto(f"{url}/studies")
        choose(page, 0)
        choose(page, 1)
        page.get_by_role("heading", name="Load 3.0 against Load 6.0").wait_for()
        page.get_by_role("cell", name="TTFT p99").wait_for()
        shoot(page, "studies-compared")
        page.get_by_role("button", name="Delete").click()
        page.get_by_role("button", name="Yes, delete 2 studies").click()
        page.get_by_text("No study is saved yet").wait_for()
        assert StudyStore(path).studies() == []


@in_browser
def test_users_sign_in_at_an_openid_provider(browser: Any, tmp_path: Path) -> None:
    provider = pytest.importorskip("oidc_provider_mock", reason="pip install oidc-provider-mock")
    user = provider.User(sub="ana", claims={"email": "ana@example.com"})
    with provider.run_server_in_thread(user_claims=[user]) as login:
        secrets = tmp_path / "secrets.toml"
        secrets.write_text(f"""[auth]
redirect_uri = "http://localhost:{{port}}/oauth2callback"
cookie_secret = "a secret of the test, with more than 32 characters"
client_id = "planner"
client_secret = "secret"
server_metadata_url = "http://localhost:{login.server_port}/.well-known/openid-configuration"
""")
        path = tmp_path / "studies.sqlite"
        with served("--studies", str(path), "--sign-in", str(secrets)) as (url, _):
            page = browser.new_context().new_page()
            page.set_default_timeout(WAIT_MS)
            page.goto(f"{url}/replay?limit=300")
            page.get_by_role("button", name="Sign in").wait_for()
            assert page.get_by_test_id("stSidebarNav").count() == 0
            shoot(page, "sign-in")
            page.get_by_role("button", name="Sign in").click()
            page.locator("[name=sub]").first.wait_for()
            shoot(page, "provider")
            page.locator("input[name=sub]").first.fill("ana")
            page.get_by_role("button", name=re.compile("authori[sz]e", re.IGNORECASE)).first.click()
            page.get_by_text("ana@example.com").wait_for()
            shoot(page, "signed-in")
            page.goto(f"{url}/replay?limit=300")
            save(page, "signed")
            assert [study.user for study in StudyStore(path).studies()] == ["ana@example.com"]
            page.get_by_role("button", name="Sign out").click()
            page.wait_for_url("**/oauth2/end_session*")  # the provider's
            page.goto(url)
            page.get_by_role("button", name="Sign in").wait_for()


def save(page: Any, name: str) -> None:
    page.get_by_role("button", name="Save as a study").click()
    page.get_by_label("Name of the study").fill(name)
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text(f"{name} is saved").wait_for()


def choose(page: Any, row: int) -> None:
    """Click on the box of a row in the table of studies."""
    table = page.get_by_test_id("stDataFrame").first
    table.wait_for()
    settle(page)
    box = table.bounding_box()
    page.mouse.click(box["x"] + 18, box["y"] + 52 + 36 * row)
    settle(page)
