"""The figure of money against headroom: a point for each fleet, and an axis that separates them."""

from planner.report.figures.plan_figures import WIDE, money_against_headroom


def test_each_fleet_is_a_point_with_its_name_and_the_cheapest_a_star() -> None:
    figure = money_against_headroom([("1 × H100 SXM", 2183.0, 2.2), ("5 × <b>L40S</b>", 6789.0, 1.3)], 1.2)
    assert [(point.name, point.x[0], point.y[0]) for point in figure.data] == [
        ("1 × H100 SXM", 2183.0, 2.2), ("5 × &lt;b&gt;L40S&lt;/b&gt;", 6789.0, 1.3)]
    assert [point.marker.symbol for point in figure.data] == ["star", "circle"]
    assert figure.layout.shapes[0].y0 == 1.2
    assert [point.text[0] for point in figure.data] == ["1 × H100 SXM", "5 × &lt;b&gt;L40S&lt;/b&gt;"]
    assert figure.layout.xaxis.type != "log"


def test_costs_that_lie_far_apart_are_on_a_logarithmic_axis() -> None:
    figure = money_against_headroom([("a", 1000.0, 2.0), ("b", 1000.0 * WIDE + 1, 1.5)], 1.2)
    assert figure.layout.xaxis.type == "log"
