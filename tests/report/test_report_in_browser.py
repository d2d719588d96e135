"""The report as people meet it: read, moved, filtered, printed, and attacked by its own labels."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect
from report_browser import CHROMIUM, opened_browser, opened_report
from written_report import ALSO_HOSTILE, BROKEN, HOSTILE, PROMISES, empty_report, whole_report

from nearsure.report import Estimate, OperatingPoint, ReliabilityBin, Report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")

CANVAS_WIDTHS = "[...document.querySelectorAll('canvas')].map((canvas) => canvas.width)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def report() -> Report:
    return whole_report()


@pytest.fixture(scope="module")
def page(
    browser: Browser, report: Report, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Page]:
    """One page for the tests that leave it as it was; complaints are checked when it closes."""
    with opened_report(browser, report, tmp_path_factory.mktemp("report")) as opened:
        yield opened.page


def said_of(point: OperatingPoint) -> str:
    decimals = 2 if float(f"{point.threshold:.2f}") < 1 or point.threshold >= 1 else 3
    start = f"accept above {point.threshold:.{decimals}f}: {100 * point.coverage:.0f}% of queries, "
    if point.precision.value is None:
        return start + "\u2013 right"
    assert point.precision.low is not None
    assert point.precision.high is not None
    interval = f"({100 * point.precision.low:.1f} to {100 * point.precision.high:.1f})"
    return start + f"{100 * point.precision.value:.1f}% right {interval}"


def sentence(page: Page) -> str:
    text = page.locator(".sentence").text_content()
    assert text == page.get_by_role("slider").get_attribute("aria-valuetext")
    return text or ""


def test_the_sentence_has_the_form_that_was_promised(page: Page) -> None:
    page.get_by_role("button", name="promise 99%", exact=True).click()
    assert sentence(page) == "accept above 0.87: 83% of queries, 99.0% right (98.6 to 99.3)"


def test_the_slider_says_the_numbers_of_the_document(page: Page, report: Report) -> None:
    points = sorted(report.operating_points, key=lambda point: point.threshold)
    slider = page.get_by_role("slider", name="Threshold of confidence")
    slider.focus()
    page.keyboard.press("Home")
    assert sentence(page) == said_of(points[0])
    for point in points[1:]:
        page.keyboard.press("ArrowRight")
        assert sentence(page) == said_of(point)
    assert sentence(page) == "accept above 1.00: 0% of queries, \u2013 right"
    page.keyboard.press("ArrowLeft")
    assert sentence(page).startswith("accept above 0.999: 4% of queries")
    counts = page.locator(".split-legend strong").all_text_contents()
    assert counts == ["40", "0", "960"]


def test_promises_are_buttons(page: Page) -> None:
    for promise, name in zip(PROMISES, ("95%", "99%", "99.9%"), strict=True):
        button = page.get_by_role("button", name=f"promise {name}", exact=True)
        before = sentence(page)
        button.focus()
        page.keyboard.press("Enter")
        assert page.locator(".promised").text_content() == promise.sentence
        if promise.threshold is None:
            assert sentence(page) == before
        else:
            assert sentence(page).startswith(f"accept above {promise.threshold:.2f}")
            assert button.get_attribute("aria-pressed") == "true"


def test_the_marker_of_the_chart_follows_the_slider(page: Page, report: Report) -> None:
    marker = """() => {
      const chart = Chart.getChart(document.querySelector('.chart-risk canvas'));
      return chart.data.datasets[0].data[0];
    }"""
    points = sorted(report.operating_points, key=lambda point: point.threshold)
    slider = page.get_by_role("slider")
    slider.focus()
    page.keyboard.press("Home")
    for point in points[:3]:
        drawn = page.evaluate(marker)
        assert point.precision.value is not None
        assert drawn["x"] == pytest.approx(point.coverage, rel=1e-12)
        assert drawn["y"] == pytest.approx(1 - point.precision.value, rel=1e-9)
        page.keyboard.press("ArrowRight")


def test_a_click_on_the_chart_moves_the_slider(page: Page) -> None:
    # Charts and pictures settle their sizes some frames after they are drawn.
    where = page.evaluate(
        """async () => {
          const canvas = document.querySelector('.chart-risk canvas');
          const place = () => {
            canvas.scrollIntoView({ block: 'center', behavior: 'instant' });
            const { x, y } = Chart.getChart(canvas).scales;
            const box = canvas.getBoundingClientRect();
            return [box.left + x.getPixelForValue(0.6), box.top + y.getPixelForValue(0.02)];
          };
          let [before, same] = [place(), 0];
          while (same < 5) {
            await new Promise(requestAnimationFrame);
            const now = place();
            same = String(now) === String(before) ? same + 1 : 0;
            before = now;
          }
          return before;
        }"""
    )
    page.mouse.click(*where)
    expect(page.locator(".sentence")).to_contain_text("accept above 0.50: 60% of queries")
    assert sentence(page).startswith("accept above 0.50: 60% of queries")


def test_the_verdict_and_the_tiles_say_the_numbers(page: Page) -> None:
    verdict = page.locator(".verdict-main").text_content() or ""
    assert verdict.startswith(
        "Of the matches with 90% confidence, 91% were right (89.5 to 93.0). "
        "The confidence is reliable: on average, confidence and accuracy differ by 1.2 points "
        "(1.0 by chance alone)."
    )
    assert "83% of the queries" in (page.locator(".verdict-act").text_content() or "")
    values = page.locator(".tile-value").all_text_contents()
    assert values == ["90.0%", "1.2%", "\u2013"]
    assert page.locator(".tile-range").nth(1).text_content() == "\u22120.1 to 2.0, 95% interval"


def test_few_queries_show_less_of_the_confidence(
    browser: Browser, report: Report, tmp_path: Path
) -> None:
    accuracy, measured, *rest = report.metrics
    for ece, claimed, judged in (
        (0.019, 0.9, "The confidence is reliable: on average, confidence and accuracy differ"),
        (0.146, 0.9, "The confidence is reliable, as far as 100 queries can show: on average,"),
        (0.146, 0.99, "The confidence is too high: on average,"),
    ):
        few = replace(
            report,
            metrics=(accuracy, replace(measured, estimate=Estimate(ece), floor=0.117), *rest),
            reliability=(ReliabilityBin(0.8, 1.0, 100, claimed, Estimate(0.8, 0.72, 0.91)),),
        )
        with opened_report(browser, few, tmp_path) as opened:
            verdict = opened.page.locator(".verdict-main").text_content() or ""
        assert judged in verdict
        assert f"{100 * ece:.1f} points (11.7 by chance alone)." in verdict


def test_no_number_reaches_out_of_its_place(page: Page) -> None:
    """Also shares of ten percent and more, and the methods with all their intervals."""
    outside = page.evaluate(
        """() => [...document.querySelectorAll(
          ".supporter-share, .label-share-value, .part-methods > .stack > .table-frame"
        )].filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)"""
    )
    assert outside == []


def test_labels_are_text_and_never_markup(page: Page) -> None:
    assert page.locator("h1").text_content() == f"Birds {HOSTILE}"
    worst = page.locator(".part-classes tbody tr").first
    assert worst.locator("th bdi").text_content() == HOSTILE
    assert page.locator(".mistake .called").first.text_content() == HOSTILE
    assert page.locator(".mistake .truth").first.text_content() == ALSO_HOSTILE
    assert page.locator(".suspect bdi").nth(1).text_content() == HOSTILE
    assert page.locator(".notes li").text_content() == f"Beware {HOSTILE}"
    assert page.locator("[onerror]").count() == 0
    # The boot script and the data; a script of a label's would be a third.
    assert page.locator("script").count() == 2


def test_pictures_are_shown_only_if_they_are_part_of_the_page(page: Page) -> None:
    cards = page.locator(".mistake")
    assert cards.nth(0).locator(".mistake-head img").count() == 1
    assert cards.nth(1).locator(".mistake-head img").count() == 0
    sources = page.evaluate("[...document.images].map((image) => image.src.slice(0, 11))")
    assert set(sources) == {"data:image/"}


def test_every_chart_has_words_and_a_table(page: Page) -> None:
    figures = page.locator("figure.chart")
    assert figures.count() == 6
    for figure in figures.all():
        canvas = figure.locator("canvas[role=img]")
        assert len(canvas.get_attribute("aria-label") or "") > 30
        assert figure.locator("details table tbody tr").count() > 0
    rows = page.locator(".chart-reliability tbody tr")
    assert rows.nth(0).locator("td").all_text_contents() == [
        "50",
        "50.0%",
        "80.0% (70.0 to 90.0)",
        "yes",
    ]


def test_the_best_of_the_methods_are_marked_also_when_they_tie(page: Page) -> None:
    rows = page.locator(".part-methods .stack > .table-frame tbody tr")
    best = [row.locator(".best").count() for row in rows.all()]
    assert best == [1, 0, 3]
    assert rows.nth(0).locator(".best").text_content() == "90.0% best"


def class_names(page: Page) -> list[str]:
    return page.locator(".part-classes tbody th bdi").all_text_contents()


def test_classes_are_worst_first_and_come_in_pages(page: Page) -> None:
    part = page.locator(".part-classes")
    names = class_names(page)
    assert names[:3] == [HOSTILE, "class-00", "class-01"]
    assert len(names) == 25
    assert part.get_by_role("status").text_content() == "1 to 25 of 60"
    for _ in range(2):
        part.get_by_role("button", name="Next").click()
    assert class_names(page)[-1] == "7"  # nothing known of it: neither best nor worst
    assert part.get_by_role("button", name="Next").is_disabled()
    part.get_by_role("button", name="Previous").click()
    part.get_by_role("button", name="Previous").click()
    assert class_names(page) == names


def test_classes_are_filtered_and_sorted(page: Page) -> None:
    part = page.locator(".part-classes")
    search = part.get_by_label("Filter")
    search.fill("CLASS-1")
    assert class_names(page) == [f"class-{place}" for place in range(10, 20)]
    assert part.get_by_role("status").text_content() == "1 to 10 of 10 found among 60"
    part.get_by_role("button", name="Queries").click()
    assert class_names(page) == [f"class-{place}" for place in reversed(range(10, 20))]
    assert part.locator("th[aria-sort]").get_attribute("aria-sort") == "descending"
    part.get_by_role("button", name="Class", exact=True).click()
    assert class_names(page)[0] == "class-10"
    search.fill("<img")
    assert class_names(page) == [HOSTILE]
    search.fill("no such class")
    assert class_names(page) == []
    assert part.get_by_role("status").text_content() == "No class found among 60"
    search.fill("")
    part.get_by_role("button", name="Right").click()
    assert class_names(page)[0] == HOSTILE


def test_mistakes_come_in_portions(page: Page) -> None:
    assert page.locator(".mistake").count() == 6
    page.get_by_role("button", name="Show 2 more").click()
    assert page.locator(".mistake").count() == 8
    first = page.locator(".mistake").first
    assert first.locator(".supporter-share").all_text_contents() == [
        "25.0%", "22.5%", "20.0%", "17.5%", "15.0%",
    ]  # fmt: skip


def test_shares_add_up_to_what_is_printed_and_surprises_are_explained(page: Page) -> None:
    shares = "(values) => window.nearsureReport.shares(values)"
    rng = np.random.default_rng(0)
    for n in (1, 3, 8, 50):
        values = rng.dirichlet(np.ones(n)) * rng.uniform(0.3, 1.0)
        written = page.evaluate(shares, values.tolist())
        assert all(abs(one - value) < 0.001 for one, value in zip(written, values, strict=True))
        printed = sum(float(f"{100 * one:.1f}") for one in written)
        assert f"{printed:.1f}" == f"{100 * values.sum():.1f}"
    assert page.evaluate(shares, []) == []
    near = {"id": "a", "label": "wren", "sq_distance": 1.0, "share": 0.1}
    far = {"id": "b", "label": "owl", "sq_distance": 2.0, "share": 0.2}
    for neighbors, said in (
        ([near, far], "a is nearer than b but has a smaller share"),
        ([near, {**far, "share": 0.05}], None),
        ([near, {**far, "sq_distance": 1.0}], None),
        ([near, {**far, "share": 0.105}], None),
        ([], None),
    ):
        why = page.evaluate("(all) => window.nearsureReport.surprise(all)", neighbors)
        assert (why is None) == (said is None)
        assert said is None or why.startswith(said)


def test_the_first_screen_says_whether_the_promise_was_kept(page: Page) -> None:
    page.evaluate("scrollTo(0, 0)")
    check = page.locator(".promise-check")
    assert check.text_content() == BROKEN
    box = check.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 800
    assert page.locator(".promise-broken").count() == 1


def test_the_confusion_matrix_opens_what_is_behind_it(page: Page) -> None:
    part = page.locator(".part-confusion")
    assert "3 less confused classes left out" in (part.text_content() or "")
    assert part.locator("tbody td").all_text_contents() == ["3", "2", "", "9"]
    part.get_by_role("button", name="taken for class-01").click()
    window = page.get_by_role("dialog")
    assert window.locator(".examples li").count() == 2
    assert window.locator("img.picture").count() == 1
    assert window.locator("q").all_text_contents() == [HOSTILE]
    page.keyboard.press("Escape")
    assert window.count() == 0
    part.get_by_role("button", name="class-01", exact=True).click()
    assert "right 41.0%" in " ".join(
        (window.text_content() or "").replace("right", "right ").split()
    )
    window.get_by_role("button", name="Close").click()


def test_the_map_shows_a_mistake_among_its_neighbours(page: Page) -> None:
    part = page.locator(".part-map")
    assert "4 of 2,000 points, drawn at random." in (part.text_content() or "")
    sizes = """() => Chart.getChart(document.querySelector('.chart-map canvas'))
      .data.datasets.map((each) => each.data.length)"""
    assert page.evaluate(sizes) == [0, 0, 2, 4, 4]
    part.get_by_label("A mistake").select_option(index=1)
    # Of its seven neighbours four are on the map; the line returns to the query after each.
    assert page.evaluate(sizes) == [1, 8, 2, 4, 4]
    part.get_by_label("A mistake").select_option(index=0)
    colours = """() => new Set(Chart.getChart(document.querySelector('.chart-map canvas'))
      .data.datasets[4].backgroundColor).size"""
    assert page.evaluate(colours) == 2


def test_mistakes_say_what_they_rest_on(page: Page) -> None:
    cards = page.locator(".mistake")
    assert cards.nth(0).locator(".mistake-support").count() == 0
    for place, said in (
        (1, "support: neighbours 62%, class as a whole 91%"),
        (2, "support: no neighbour is of this class, class as a whole 88%"),
        (3, "support: neighbours 30%, a class newer than the fit"),
    ):
        assert cards.nth(place).locator(".mistake-support").text_content() == said


def test_the_choice_of_a_head_is_said(browser: Browser, report: Report, tmp_path: Path) -> None:
    assert report.fit is not None
    assert report.fit.head_choice is not None
    without = replace(report, fit=replace(report.fit, head=None, head_choice=None))
    for one, said in ((report, [report.fit.head_choice]), (without, [])):
        with opened_report(browser, one, tmp_path) as opened:
            assert opened.page.locator(".fit-head").all_text_contents() == said


def test_an_empty_report_says_so(browser: Browser, tmp_path: Path) -> None:
    with opened_report(browser, empty_report(), tmp_path) as opened:
        said = opened.page.locator(".nothing").all_text_contents()
        assert len(said) == 12
        assert "No class was taken for another." in said
        assert "The gallery was not audited." in said
        assert "No answer was wrong." in said
        assert opened.page.locator("canvas").count() == 0
        assert opened.page.locator(".verdict").text_content() == "There are no answers to judge."


def ground(page: Page) -> str:
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return colour


def test_it_is_light_and_dark_by_wish(browser: Browser, report: Report, tmp_path: Path) -> None:
    line = """() => Chart.getChart(document.querySelector('.chart-risk canvas'))
      .data.datasets[1].borderColor"""
    with opened_report(browser, report, tmp_path, scheme="dark") as opened:
        page = opened.page
        dark, dark_line = ground(page), page.evaluate(line)
        page.get_by_role("button", name="Switch to light colours").click()
        light, light_line = ground(page), page.evaluate(line)
        assert sum(channels(dark)) < 100
        assert sum(channels(light)) > 600
        assert dark_line != light_line
        page.reload()
        assert ground(page) == light
        page.get_by_role("button", name="Switch to dark colours").click()
        assert (ground(page), page.evaluate(line)) == (dark, dark_line)


def channels(colour: str) -> list[int]:
    return [int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]


def test_on_paper_it_is_light_sharp_and_without_buttons(
    browser: Browser, report: Report, tmp_path: Path
) -> None:
    ink = "getComputedStyle(document.querySelector('.sentence')).color"
    with opened_report(browser, report, tmp_path, scheme="dark") as opened:
        page = opened.page
        on_screen: list[int] = page.evaluate(CANVAS_WIDTHS)
        assert sum(channels(page.evaluate(ink))) > 600
        # What a browser does when it prints, as seen from the page.
        page.evaluate(
            f"addEventListener('beforeprint', () => {{ window.seen = {CANVAS_WIDTHS}; }})"
        )
        assert page.pdf(format="A4").startswith(b"%PDF")
        assert min(page.evaluate("window.seen")) >= 2 * 440
        assert page.evaluate(CANVAS_WIDTHS) == on_screen
        page.emulate_media(media="print")
        page.wait_for_selector("html[data-print]")
        assert sum(channels(page.evaluate(ink))) < 200
        assert page.locator("button.button:visible, input:visible, nav:visible").count() == 0
        assert min(page.evaluate(CANVAS_WIDTHS)) >= 2 * 440
        page.emulate_media(media="screen")
        page.wait_for_selector("html:not([data-print])")
        assert page.evaluate(CANVAS_WIDTHS) == on_screen


def test_it_fits_on_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    # Charts follow a new width only after a while.
    # Asked again and again, since the page forbids what `wait_for_function` would do.
    for _ in range(100):
        if page.evaluate("document.documentElement.scrollWidth") == 390:
            break
        page.wait_for_timeout(50)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.set_viewport_size({"width": 1200, "height": 900})


def test_a_live_page_mends_the_gallery(browser: Browser, report: Report, tmp_path: Path) -> None:
    with opened_report(browser, report, tmp_path, live=True) as opened:
        page = opened.page
        assert sentence(page).startswith("accept above 0.50")
        assert page.locator("h1").all_text_contents() == ["Live"]
        suspects = page.locator(".suspect")
        assert suspects.nth(0).get_by_role("button", name="Relabel").count() == 0  # none suggested
        suspects.nth(1).get_by_role("button", name="Relabel").click()
        done = suspects.nth(1).locator(".done")
        done.wait_for()
        assert done.text_content() == f"\u2713 now labelled {ALSO_HOSTILE}"
        page.evaluate("window.refusal = 'The gallery is read-only.'")
        suspects.nth(2).get_by_role("button", name="Remove").click()
        problem = suspects.nth(2).get_by_role("alert")
        problem.wait_for()
        assert problem.text_content() == "The gallery is read-only."
        assert page.evaluate("document.activeElement.closest('.suspect') !== null")
        page.evaluate("window.refusal = null")
        suspects.nth(2).get_by_role("button", name="Remove").click()
        suspects.nth(2).locator(".done").wait_for()
        page.get_by_role("button", name="Use this threshold").click()
        calls = page.evaluate("window.calls")
        assert [call[0] for call in calls] == ["relabel", "remove", "remove", "threshold"]
        assert (calls[0][1]["id"], calls[0][2]) == (1, ALSO_HOSTILE)
        assert (calls[2][1]["id"], calls[3][1]) == (2, pytest.approx(0.502))
        part = page.locator(".part-audit")
        part.get_by_role("button", name="Next").click()
        part.get_by_role("button", name="Previous").click()
        assert suspects.nth(1).locator(".done").count() == 1  # paging forgets nothing
        page.evaluate("window.takeDown()")
        assert page.locator("#place > *").count() == 0
        assert page.evaluate("Object.keys(Chart.instances).length") == 0


def test_ten_thousand_classes_are_not_ten_thousand_rows(page: Page) -> None:
    draw = """(n) => {
      const report = JSON.parse(document.getElementById('report-data').textContent);
      const some = report.classes[0];
      report.classes = Array.from({ length: n }, (_, place) => ({ ...some, label: 'c' + place }));
      window.nearsureReport.render(document.getElementById('report'), report, {});
    }"""
    page.evaluate(draw, 10_000)
    assert page.locator("canvas").count() == 6  # what was there before is gone
    assert page.locator(".part-classes tbody tr").count() == 25
    page.get_by_label("Filter").fill("c9999")
    assert class_names(page) == ["c9999"]
    page.reload()
