"""What the page says about a promise that does not hold, and labels that are given in it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_page import BARRIERS, WatchedPage, expect_fit, opened_browser
from browser_service import (
    HOSTILE,
    READ_TOKEN,
    Served,
    draw_queries,
    make_gallery,
    make_overlapping,
    serving,
)
from playwright.sync_api import Browser, Page, expect

from nearsure.service import watch

SURE = [4.0, 0.0, 0.0, 0.0, 0.0, 0.0]
ACT = "You may act on this"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened_browser() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    watched = WatchedPage(browser)
    yield watched.page
    watched.page.context.close()
    watched.check_peace()


@pytest.fixture(autouse=True)
def _check_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SHARE_OF_TIME", 1e9)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    make_overlapping(tmp_path / "gallery.sqlite")
    with serving(tmp_path / "gallery.sqlite") as running:
        yield running


def ask_until(served: Served, state: str, **how: float) -> dict[str, Any]:
    """Ask queries until the promise has this state."""
    end = time.monotonic() + 20
    for seed in range(100):
        names = [f"camera 7, photo {seed}-{place}" for place in range(60)]
        body = {"vectors": draw_queries(60, seed, **how).tolist(), "names": names}
        served.call("/v1/predict/batch", body)
        time.sleep(0.1)
        promise: dict[str, Any] = served.call("/v1/promise")
        if promise["state"] == state and promise["checked"] is not None:
            return promise
        assert time.monotonic() < end, promise
    pytest.fail(f"never {state}: {promise}")


def opened(page: Page, served: Served, tab: str = "ask") -> Page:
    page.goto(f"{served.address}/#{tab}")
    expect(page.locator(f"#panel-{tab}")).to_be_visible()
    return page


def paste(page: Page, vector: list[float]) -> None:
    page.get_by_role("radio", name="Vector").check()
    page.locator("#vector").fill(str(vector))
    page.locator('[data-mode="paste"]').get_by_role("button", name="Ask").click()
    expect(page.locator("#judgement")).to_be_visible()


def set_slider(page: Page, threshold: float) -> None:
    page.locator("#threshold").evaluate(
        """(slider, value) => {
          slider.value = value;
          slider.dispatchEvent(new Event("input"));
        }""",
        threshold,
    )


def test_nothing_is_said_while_the_promise_holds(page: Page, served: Served) -> None:
    ask_until(served, "holds")
    opened(page, served)
    expect(page.locator("#promises button").first).to_be_visible()
    paste(page, SURE)
    expect(page.locator("#judgement")).to_contain_text(ACT)
    expect(page.locator("#promise")).to_be_hidden()


def test_a_withdrawn_promise_is_told_and_no_answer_may_be_acted_on(
    page: Page, served: Served
) -> None:
    opened(page, served)
    expect(page.locator("#promises button").first).to_be_visible()
    paste(page, SURE)
    expect(page.locator("#judgement")).to_contain_text(ACT)
    ask_until(served, "withdrawn", moved=3.0)
    # The page hears of it with the next answer.
    paste(page, SURE)
    banner = page.get_by_role("status").filter(has_text="Promise withdrawn.")
    expect(banner).to_be_visible()
    expect(banner).to_contain_text("they lie farther away")
    expect(banner).to_contain_text("no answer is accepted")
    judgement = page.locator("#judgement")
    expect(judgement).to_contain_text("Not accepted.")
    expect(judgement).not_to_contain_text(ACT)
    expect(page.locator("#threshold-in-use")).to_have_text("The promise of 90% is withdrawn.")
    # Whoever moves the slider sees what it would accept, and no promise.
    set_slider(page, 0.9)
    expect(judgement).to_contain_text("look twice")
    expect(judgement).not_to_contain_text(ACT)
    expect(page.locator("#threshold-sentence")).to_contain_text("recent queries differ")
    expect_fit(page)
    assert page.evaluate(BARRIERS) == []
    page.reload()
    expect(page.locator("#promise")).to_contain_text("Promise withdrawn.")
    page.get_by_role("button", name="Label queries").click()
    expect(page.locator("#tab-labels")).to_be_focused()
    expect(page.locator("#label-place")).to_have_text("Query 1 of 20")


def test_an_adjusted_promise_names_its_threshold(page: Page, served: Served) -> None:
    promise = ask_until(served, "adjusted", noise=2.4)
    opened(page, served)
    expect(page.locator("#promise")).to_contain_text("Promise adjusted.")
    shown = f"{promise['threshold']:.3f}"
    expect(page.locator("#promise")).to_contain_text(f"from a confidence of {shown} on")
    expect(page.locator("#promise")).to_contain_text("keep 90% of them right")
    paste(page, SURE)
    expect(page.locator("#judgement")).to_contain_text(f"{ACT}: the threshold was adjusted")
    expect(page.locator("#threshold-in-use")).to_contain_text("adjusted to recent queries")
    set_slider(page, promise["threshold"] - 0.05)
    expect(page.locator("#judgement")).to_contain_text("look twice")


def test_a_number_that_was_set_is_used_and_the_difference_is_told(
    page: Page, served: Served
) -> None:
    served.call("/v1/threshold", {"threshold": 0.9}, "PUT")
    for seed in range(6):
        served.call("/v1/predict/batch", {"vectors": draw_queries(60, seed, moved=3.0).tolist()})
        time.sleep(0.3)
        served.call("/v1/promise")
    opened(page, served)
    expect(page.locator("#promise")).to_contain_text("Recent queries differ.")
    paste(page, SURE)
    expect(page.locator("#judgement")).to_contain_text("Accepted.")
    expect(page.locator("#judgement")).not_to_contain_text(ACT)


def test_queries_are_labelled_by_keyboard(page: Page, served: Served) -> None:
    ask_until(served, "withdrawn", moved=3.0)
    opened(page, served, "labels")
    place = page.locator("#label-place")
    expect(place).to_have_text("Query 1 of 20")
    expect(page.locator(".look-name")).to_contain_text("camera 7, photo")
    expect(page.locator("#send-labels")).to_be_disabled()
    expect(page.locator("#label-progress")).to_contain_text("at least 29 labels are needed")
    expect(page.locator("#label-none")).to_be_hidden()
    expect_fit(page)
    assert page.evaluate(BARRIERS) == []
    place.focus()
    first = page.locator("#label-suggestions button").first.inner_text()
    page.keyboard.press("1")
    expect(place).to_have_text("Query 2 of 20")
    expect(place).to_be_focused()
    page.get_by_role("button", name="Back").press("Enter")
    expect(place).to_have_text("Query 1 of 20")
    chosen = page.locator('#label-suggestions [aria-pressed="true"]')
    expect(chosen).to_have_count(1)
    assert chosen.inner_text() == first
    page.keyboard.press("1")
    # A class that is not suggested, and a digit that belongs to its name.
    page.locator("#other-class").press_sequentially("cat2")
    expect(place).to_have_text("Query 2 of 20")
    page.locator("#other-class").fill("owl")
    page.locator("#other-class").press("Enter")
    expect(place).to_have_text("Query 3 of 20")
    page.get_by_role("button", name="Skip").press("Enter")
    expect(place).to_have_text("Query 4 of 20")
    for number in range(5, 21):
        page.keyboard.press("1")
        expect(place).to_have_text(f"Query {number} of 20")
    page.keyboard.press("1")
    expect(page.locator("#label-card")).to_be_hidden()
    expect(page.locator("#label-progress")).to_contain_text("19 queries labelled. 20 are needed.")
    expect(page.locator("#more-queries")).to_be_focused()
    page.keyboard.press("Enter")
    expect(place).to_contain_text("Query 21 of")
    page.keyboard.press("1")
    page.get_by_role("button", name="Use 20 labels").press("Enter")
    expect(page.locator("#learned")).to_contain_text("20 labelled queries")
    expect(page.locator("#learned-heading")).to_be_focused()
    expect(page.locator("#learned-promises li")).to_have_count(3)
    labels = served.call("/v1/labels")
    assert labels["n_labels"] == 20
    expect(page.locator("#learned")).to_have_text(labels["sentence"])
    expect(page.locator("#facts")).to_contain_text("fit 2")
    # The promise rests on the labels: the banner goes.
    expect(page.locator("#promise")).to_be_hidden()
    expect_fit(page)
    page.get_by_role("button", name="Forget the labels").click()
    expect(page.locator("#learned")).to_contain_text("No query is labelled")
    assert served.call("/v1/labels")["n_labels"] == 0


def test_the_last_label_can_be_corrected(page: Page, served: Served) -> None:
    served.call("/v1/predict/batch", {"vectors": draw_queries(40, 1).tolist()})
    opened(page, served, "labels")
    place = page.locator("#label-place")
    expect(place).to_have_text("Query 1 of 20")
    place.focus()
    for _ in range(20):
        page.keyboard.press("1")
    expect(page.locator("#label-card")).to_be_hidden()
    page.get_by_role("button", name="Back").press("Enter")
    expect(place).to_have_text("Query 20 of 20")
    expect(place).to_be_focused()
    chosen = page.locator('#label-suggestions [aria-pressed="true"]')
    expect(chosen).to_have_count(1)
    page.keyboard.press("2")
    page.get_by_role("button", name="Back").press("Enter")
    expect(chosen.locator("kbd")).to_have_text("2")


def test_queries_that_differ_from_those_labelled_are_told_so(page: Page, served: Served) -> None:
    served.call("/v1/threshold", {"precision": 0.6}, "PUT")
    vectors = draw_queries(100, 1).tolist()
    answers = served.call("/v1/predict/batch", {"vectors": vectors})["answers"]
    labelled = [
        {"vector": vector, "label": answer["label"]}
        for vector, answer in zip(vectors, answers, strict=True)
    ]
    served.call("/v1/labels", {"queries": labelled})
    promise = ask_until(served, "withdrawn", moved=3.0)
    assert promise["compared_with"] == "labelled queries"
    opened(page, served)
    banner = page.locator("#promise")
    expect(banner).to_contain_text("are not like those labelled: ")
    paste(page, SURE)
    expect(page.locator("#judgement")).to_contain_text("which are not like those labelled")
    expect(page.locator("#panel-ask")).not_to_contain_text("not like the gallery")


def test_names_and_labels_are_text_never_markup(page: Page, served: Served) -> None:
    body = {"vectors": draw_queries(40, 1).tolist(), "names": [HOSTILE] * 40}
    served.call("/v1/predict/batch", body)
    opened(page, served, "labels")
    suggestions = page.locator("#label-suggestions")
    for _ in range(20):
        expect(page.locator(".look-name")).to_have_text(HOSTILE)
        if HOSTILE in suggestions.inner_text():
            break
        page.get_by_role("button", name="Skip").click()
    expect(suggestions).to_contain_text(HOSTILE)
    assert page.evaluate("window.fooled") is None


def test_a_class_of_nobody_is_offered_where_unknown_queries_are_expected(
    page: Page, tmp_path: Path
) -> None:
    make_gallery(tmp_path / "gallery.sqlite")
    with serving(tmp_path / "gallery.sqlite") as served:
        opened(page, served, "labels")
        expect(page.locator("#labels-note")).to_contain_text("Too few different queries")
        served.call("/v1/predict/batch", {"vectors": draw_queries(60, 1, noise=0.8).tolist()})
        page.reload()
        expect(page.locator("#label-place")).to_have_text("Query 1 of 20")
        page.locator("#label-place").focus()
        for _ in range(19):
            page.keyboard.press("1")
        page.get_by_role("button", name="None of these").click()
        expect(page.locator("#label-card")).to_be_hidden()
        expect(page.locator("#label-progress")).to_contain_text("20 queries labelled.")
        page.get_by_role("button", name="Show more queries").click()
        expect(page.locator("#label-place")).to_contain_text("Query 21 of")
        page.keyboard.press("1")
        page.get_by_role("button", name="Use 21 labels").click()
        expect(page.locator("#learned")).to_contain_text("21 labelled queries")


def test_who_may_only_read_is_told_and_cannot_label(page: Page, tmp_path: Path) -> None:
    make_overlapping(tmp_path / "gallery.sqlite")
    with serving(tmp_path / "gallery.sqlite", tokens=True) as served:
        ask_until(served, "withdrawn", moved=3.0)
        page.goto(f"{served.address}/#labels")
        page.locator("#token").fill(READ_TOKEN)
        page.get_by_role("button", name="Open the gallery").click()
        expect(page.locator("#panel-ask")).to_be_visible()
        expect(page.locator("#promise")).to_contain_text("with a write token can label")
        expect(page.locator("#label-queries")).to_be_hidden()
        expect(page.locator("#tab-labels")).to_be_hidden()
        page.locator("#tab-compare").focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#tab-report")).to_be_focused()
