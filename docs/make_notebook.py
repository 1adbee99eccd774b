"""Write docs/notebook.ipynb, or the path given, from the cells below, executed: `make notebook`."""

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

PATH = Path(__file__).with_name("notebook.ipynb")
CELLS = (
    ("markdown", "# Capacity planning in a notebook\n\nA trace and a scenario go in, an answer comes out. An answer "
                 "prints as its command does, is a mapping of the keys of `--json`, and has rows in `to_polars()`."),
    ("code", "import planner\n\ntrace = planner.read_trace(\"chat\")  # a bundled sample; or your file\n"
             "llama = planner.Scenario(model=\"llama-3.1-8b\", gpu=\"h100-sxm\")\n"
             "outcome = planner.replay(trace, llama, slo=\"ttft:500 tpot:50\")\noutcome"),
    ("markdown", "Every request is a row, with the phases of its time."),
    ("code", "columns = [\"ttft_s\", \"tpot_s\", \"queue_s\", \"prefill_s\", \"decode_s\"]\n"
             "outcome.requests.select(columns).describe()"),
    ("markdown", "Two and a half times the traffic: why is it slow, and what is to be changed first?"),
    ("code", "from dataclasses import replace\n\nbusy = replace(llama, rate_scale=2.5)\n"
             "planner.explain(trace, busy, slo=\"ttft:500 tpot:25\")"),
    ("code", "planner.compare(trace, {\"as is\": busy, \"512 seats\": replace(busy, max_num_seqs=512)},\n"
             "                slo=\"ttft:500 tpot:25\")"),
    ("markdown", "How much would it bear?"),
    ("code", "answer = planner.capacity(trace, llama, \"ttft:500 tpot:50\", attainment=0.99, replicates=4)\nanswer"),
    ("code", "round(answer[\"capacity_rps\"], 1), answer[\"limiting_metric\"]"),
    ("markdown", "Which fleet serves sixty requests a second at the least price?"),
    ("code", "planner.size(trace, replace(llama, request_rate=60.0), \"ttft:500 tpot:50\",\n"
             "             gpus=[\"h100-sxm\", \"l40s\"], ranks=[1, 2])"),
    ("markdown", "A grid of settings, of which no other configuration beats those shown."),
    ("code", "planner.sweep(\"chat\", replace(busy, limit=5000),\n              {\"max_num_seqs\": [64, 128, 256], "
             "\"max_num_batched_tokens\": [1024, 2048, 8192]},\n              slo=\"ttft:500 tpot:25\", "
             "pareto=[\"p99_ttft_ms\", \"p99_tpot_ms\"])"),
)


def executed() -> nbformat.NotebookNode:
    """Return the notebook with its outputs, run in an empty folder."""
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3",
                                                                 "language": "python"}})
    for place, (kind, text) in enumerate(CELLS):
        cell = nbformat.v4.new_markdown_cell(text) if kind == "markdown" else nbformat.v4.new_code_cell(text)
        cell["id"] = f"cell-{place}"
        notebook.cells.append(cell)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}},
                       record_timing=False).execute()
    return notebook


if __name__ == "__main__":
    nbformat.write(executed(), sys.argv[1] if len(sys.argv) > 1 else PATH)
