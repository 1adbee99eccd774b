"""The gate's verdicts as JUnit XML, for a CI's list of tests, and as Markdown, for a job's summary."""

from xml.etree import ElementTree

from planner.planning.check_answer import CheckAnswer
from planner.report.escaping import escape, escape_cell
from planner.report.figures.style import clean
from planner.report.gate_tables import HEADS, gate_headline, gate_row
from planner.report.markdown import table_line

OUTCOMES = {"missed": "failure", "regressed": "failure", "no baseline": "error", "not compared": "skipped",
            "recorded": "skipped"}


def gate_markdown(result: CheckAnswer) -> str:
    """Return a heading, how many targets are met, and a row for each."""
    title = f"Capacity targets: {'met' if result.met else 'missed'}"
    rows = [table_line([escape_cell(cell) for cell in gate_row(row)]) for row in result.checks]
    lines = [f"## {title}", "", f"{escape(result.targets)}, {escape(gate_headline(result))}", "",
             table_line(HEADS), table_line(["---"] * len(HEADS)), *rows]
    return "\n".join(lines) + "\n"


def gate_junit(result: CheckAnswer) -> str:
    """Return a test case for each limit: failed if it is missed, skipped if it was not compared."""
    checks = result.checks
    kinds = [OUTCOMES.get(row.verdict) for row in checks]
    counts = {"tests": str(len(checks)), "failures": str(kinds.count("failure")), "errors": str(kinds.count("error")),
              "skipped": str(kinds.count("skipped"))}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": clean(result.targets), **counts})
    for row, kind in zip(checks, kinds, strict=True):
        _, metric, target, predicted, margin, verdict = map(clean, gate_row(row))
        case = ElementTree.SubElement(suite, "testcase", {"classname": clean(row.scenario),
                                                          "name": f"{metric} {row.kind}"})
        message = {"message": f"{metric} {predicted}, target {target}, margin {margin}: {verdict}"}
        if kind is not None:
            ElementTree.SubElement(case, kind, message if kind == "skipped" else {**message, "type": row.verdict})
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
