"""TOML that the planner writes: any text in it is read back as it was."""

import dataclasses
from pathlib import Path

from planner.catalog.catalog_files import data_dir
from planner.planning.study import Study, read_study, study_toml
from planner.settings.scenario import Scenario
from planner.traces.synthesis import Model, read_workload
from planner.traces.synthesis.traffic_model import to_toml

TEXT = 'tr📈ffic "é\\\x7f'


def test_a_scenario_with_any_character_in_its_path_is_read_back(tmp_path: Path) -> None:
    folder = tmp_path / "tr📈ffic é"
    folder.mkdir()
    (folder / "t📈.csv").write_text("arrival_s,input_tokens,output_tokens\n0,5,5\n")
    study = Study(name="scenario", trace=str(folder / "t📈.csv"), format="columns,arrival_s=📈", objectives=None,
                  scenario=Scenario(model="llama-3.1-8b", gpu="h100-sxm", enable_chunked_prefill=False))
    path = folder / "scenario.toml"
    path.write_text(study_toml(study), encoding="utf-8")
    assert read_study(path) == study


def test_a_workload_model_with_any_text_is_read_back(tmp_path: Path) -> None:
    model = read_workload(data_dir("workloads") / "fitted-chat.toml")
    assert isinstance(model, Model)
    model = dataclasses.replace(model, meaning=TEXT, source=TEXT)
    path = tmp_path / "fitted-chat.toml"
    path.write_text(to_toml(model), encoding="utf-8")
    assert dataclasses.replace(read_workload(path), sha256="") == dataclasses.replace(model, sha256="")
