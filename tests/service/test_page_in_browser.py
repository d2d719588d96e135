"""The page in a real browser, against the real service."""

import io
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser_service import (
    CLASSES,
    HOSTILE,
    MISLABELLED,
    READ_TOKEN,
    WRITE_TOKEN,
    Served,
    center_of,
    serving,
)
from PIL import Image
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from nearsure.arrays import AnyArray

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
TELL_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) => console.error(event.violatedDirective));
"""
BARRIERS = Path(__file__).with_name("page_barriers.js").read_text("utf-8")
# Charts follow a new width only after a while.
SETTLED_WIDTH = """async (wanted) => {
  const end = performance.now() + 5000;
  const width = () => document.documentElement.scrollWidth;
  while (width() !== wanted && performance.now() < end) await new Promise(requestAnimationFrame);
  return width();
}"""
# A machine that builds other things at the same time is slow.
PATIENCE = 20_000
expect.set_options(timeout=PATIENCE)


def is_expected(line: ConsoleMessage) -> bool:
    """Chromium itself notes every answer of 401, and the page lives with items without pictures."""
    return "status of 401" in line.text or line.location["url"].endswith("/picture")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = os.environ.get("NEARSURE_CHROMIUM") or next(
        filter(None, map(shutil.which, BROWSERS)), None
    )
    if found is None:
        pytest.skip("no Chromium is installed; NEARSURE_CHROMIUM may name one")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("open")) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("guarded"), tokens=True) as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A fresh page; whatever it complains about fails the test."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    context.add_init_script(TELL_VIOLATIONS)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    complaints: list[str] = []

    def hear(line: ConsoleMessage) -> None:
        if line.type == "error" and not is_expected(line):
            complaints.append(line.text)

    page.on("console", hear)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
    assert complaints == []


def opened(page: Page, served: Served, tab: str = "ask") -> Page:
    page.goto(f"{served.address}/#{tab}")
    expect(page.locator(f"#panel-{tab}")).to_be_visible()
    return page


def choose(page: Page, mode: str) -> None:
    page.get_by_role("radio", name=mode).check()


def shown_percent(share: float) -> str:
    if share > 0.999:
        return ">99.9%"
    return f"{100 * share:.{1 if share > 0.99 or share < 0.01 else 0}f}%"


def expect_answer(page: Page, answer: dict[str, Any]) -> None:
    """That the page shows what the API said."""
    expect(page.locator("#answer-label")).to_have_text(str(answer["label"]))
    expect(page.locator("#answer-confidence")).to_have_text(shown_percent(answer["confidence"]))
    names = [f"Ask about item {neighbor['id']}" for neighbor in answer["neighbors"]]
    expect(page.locator("#neighbors .link")).to_have_text(names)
    expect(page.locator("#class-shares > li")).to_have_count(len(answer["classes"]))


def asked(served: Served, **query: object) -> dict[str, Any]:
    answer: dict[str, Any] = served.call("/v1/predict", {**query, "neighbors": 12, "classes": 6})
    return answer


def paste(page: Page, text: str) -> None:
    page.locator("#vector").fill(text)
    page.locator('[data-mode="paste"]').get_by_role("button", name="Ask").click()


def test_a_pasted_vector_is_answered(page: Page, served: Served) -> None:
    opened(page, served)
    choose(page, "Vector")
    vectors = {name: (center_of(name) + 0.25).tolist() for name in ("cat", "dog", "owl")}
    paste(page, str(vectors["cat"]))
    expect_answer(page, asked(served, vector=vectors["cat"]))
    paste(page, " ".join(map(str, vectors["dog"])))
    expect_answer(page, asked(served, vector=vectors["dog"]))
    paste(page, ",\n".join(map(str, vectors["owl"])))
    expect_answer(page, asked(served, vector=vectors["owl"]))
    expect(page.locator("#answer-label")).to_have_text("owl")
    expect(page.locator(".chip")).to_have_text("Known")
    paste(page, "-30 -30 -30 -30 -30 -30")
    expect(page.locator(".chip")).to_have_text("Unknown")
    for text, said in (
        ("", "Paste a vector of 6 numbers first."),
        ("1 2 3", "The gallery holds vectors of 6 numbers. Got 3 instead."),
        ("1 2 3 4 5 cat", 'Entry 6 must be a finite number. Got "cat" instead.'),
        ("[1, 2", "This begins like JSON but is not."),
    ):
        paste(page, text)
        expect(page.get_by_role("alert").filter(has_text=said)).to_be_visible()
        expect(page.locator("#answer-label")).to_have_count(0)


def as_npy(rows: AnyArray, kind: str) -> bytes:
    content = io.BytesIO()
    np.save(content, rows.astype(kind))
    return content.getvalue()


def test_vectors_of_files_are_asked_about(page: Page, served: Served) -> None:
    opened(page, served)
    choose(page, "File")
    rows = np.stack([center_of("dog"), center_of("owl")])
    files = {
        "one.json": b'{"vector": [0, 4, 0, 0, 0, 0]}',
        "two.npy": as_npy(rows, "<f4"),
        "one.txt": b"0\n4\n0\n0\n0\n0\n",
        "wide.npy": as_npy(rows, "<f8"),
        "turned.npy": as_npy(rows, ">f4"),
        "table.csv": b"id,label,a,b,c,d,e,f\nx,dog,0,4,0,0,0,0\ny,owl,0,0,4,0,0,0\n",
        "rows.jsonl": b'{"vector":[0,4,0,0,0,0]}\n{"vector":[0,0,4,0,0,0]}\n',
    }
    answers = [asked(served, vector=row.tolist()) for row in rows]
    for name, content in files.items():
        page.locator("#vector-file").set_input_files(
            {"name": name, "mimeType": "application/octet-stream", "buffer": content}
        )
        expect_answer(page, answers[0])
        has_rows = not name.startswith("one.")
        expect(page.locator("#row-choice")).to_be_visible(visible=has_rows)
        if has_rows:
            page.get_by_label("Row").fill("2")
            page.locator("#row-choice").get_by_role("button", name="Ask").click()
            expect_answer(page, answers[1])


def test_a_text_is_asked_about_where_an_encoder_is_configured(page: Page, served: Served) -> None:
    opened(page, served)
    expect(page.get_by_role("radio", name="Text")).to_be_checked()
    expect(page.get_by_role("radio", name="Image")).to_be_hidden()
    page.get_by_role("textbox", name="Text").fill("surely an owl")
    page.locator('[data-mode="text"]').get_by_role("button", name="Ask").click()
    expect_answer(page, asked(served, text="surely an owl"))


def test_the_slider_judges_at_once_and_its_threshold_can_be_used(
    page: Page, served: Served
) -> None:
    opened(page, served)
    choose(page, "Item")
    page.get_by_role("searchbox", name="An item of the gallery").fill("dog-05")
    page.get_by_role("button", name="dog dog-05").click()
    answer = asked(served, item="dog-05")
    expect_answer(page, answer)
    expect(page.locator("#answer .thumb img")).to_be_visible()
    slider = page.get_by_role("slider")
    report = served.call("/v1/report")
    expect(page.locator("#promises button").first).to_be_visible()
    for threshold, accepted in ((0.05, True), (1.0, False)):
        slider.fill(str(threshold))
        judged = page.locator("#judgement")
        expect(judged).to_contain_text("Accepted." if accepted else "Not accepted.")
        assert (answer["confidence"] >= threshold) == accepted
    slider.fill("0.5")
    point = next(one for one in report["operating_points"] if one["threshold"] >= 0.5)
    right = {name: 100 * share for name, share in point["precision"].items()}
    expect(page.locator("#threshold-sentence")).to_have_text(
        f"Accept above 0.50: {100 * point['coverage']:.0f}% of queries, "
        f"{right['value']:.1f}% right ({right['low']:.1f} to {right['high']:.1f})."
    )
    slider.press("ArrowRight")
    expect(slider).to_have_attribute("aria-valuetext", "0.505")
    slider.fill("0.77")
    page.get_by_role("button", name="Use this threshold").click()
    expect(page.locator("#threshold-in-use")).to_have_text("This threshold is in use.")
    assert served.call("/v1/threshold")["threshold"] == 0.77
    page.reload()
    expect(page.get_by_role("slider")).to_have_value("0.77")


def test_nothing_bars_the_way(page: Page, served: Served) -> None:
    opened(page, served)
    choose(page, "Item")
    page.locator("#item-choices button").first.click()
    expect(page.locator("#neighbors > li").first).to_be_visible()
    waiting = {"ask": "#promises button", "gallery": ".suspect", "report": "#report h2"}
    for tab, sign in waiting.items():
        opened(page, served, tab)
        expect(page.locator(sign).first).to_be_visible()
        page.emulate_media(color_scheme="light")
        assert page.evaluate(BARRIERS) == []
        page.emulate_media(color_scheme="dark")
        assert page.evaluate(BARRIERS) == []
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate(SETTLED_WIDTH, 360) == 360, tab
        page.set_viewport_size({"width": 1200, "height": 900})


@pytest.mark.parametrize("tab", ["ask", "gallery"])
def test_the_tab_key_reaches_everything(page: Page, served: Served, tab: str) -> None:
    opened(page, served, tab)
    expect(
        page.locator("#items tr" if tab == "gallery" else "#promises button").first
    ).to_be_visible()
    if tab == "gallery":
        expect(page.locator(".suspect").first).to_be_visible()
    goals = page.evaluate(
        """() => {
          const kinds = "button, input, textarea, a[href], [tabindex='0']";
          const goals = [...document.querySelectorAll(kinds)].filter((one) => one.checkVisibility()
            && !one.disabled && one.tabIndex >= 0 && !(one.type === "radio" && !one.checked));
          goals.forEach((one, place) => { one.dataset.goal = place; });
          document.activeElement.blur();
          return goals.length;
        }"""
    )
    reached = set()
    for _ in range(goals + 5):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.dataset.goal"))
    assert {str(place) for place in range(goals)} <= reached


def test_tabs_by_keyboard_the_live_report_and_hostile_labels(page: Page, served: Served) -> None:
    opened(page, served)
    choose(page, "Item")
    page.get_by_role("searchbox", name="An item of the gallery").fill("odd-02")
    page.locator('#item-choices button[value="odd-02"]').click()
    expect(page.locator("#answer-label")).to_have_text(HOSTILE)
    page.get_by_role("tab", name="Ask").focus()
    for key, name in (("ArrowRight", "Gallery"), ("Home", "Ask"), ("ArrowLeft", "Report")):
        page.keyboard.press(key)
        expect(page.get_by_role("tab", name=name)).to_be_focused()
        expect(page.get_by_role("tabpanel", name=name)).to_be_visible()
        expect(page.get_by_role("tabpanel")).to_have_count(1)
    accuracy = next(m for m in served.call("/v1/report")["metrics"] if m["key"] == "accuracy")
    expect(page.locator("#report")).to_contain_text(f"{100 * accuracy['estimate']['value']:.1f}%")
    expect(page.locator("#report")).to_contain_text(HOSTILE)
    assert page.locator("#report canvas").count() > 0
    assert page.evaluate("window.fooled === undefined")
    assert page.locator('img[src="x"]').count() == 0


def test_a_suspect_is_relabelled_with_one_click_and_stays_so(page: Page, served: Served) -> None:
    opened(page, served, "gallery")
    suspect = page.locator('.suspect[data-id="cat-03"]')
    expect(suspect).to_contain_text("labelled dog")
    suspect.get_by_role("button", name="Relabel to cat").click()
    expect(page.locator("#status-text")).to_have_text(
        "Item cat-03 is labelled “cat” now; it was “dog”."
    )
    expect(suspect).to_have_count(0)
    assert page.evaluate("document.activeElement.closest('#suspects, #suspects-heading') !== null")
    assert served.label_of("cat-03") == "cat"
    page.reload()
    expect(page.locator('#items tr[data-id="cat-03"] td').first).to_have_text("cat")
    expect(page.locator(".suspect").first).to_be_visible()
    expect(suspect).to_have_count(0)

    page.locator('.suspect[data-id="owl-07"]').get_by_role("button", name="Other label").click()
    page.get_by_label("New label").fill("hawk")
    page.get_by_role("dialog").get_by_role("button", name="Relabel").click()
    expect(page.locator("#status-text")).to_contain_text("“hawk”")
    assert served.label_of("owl-07") == "hawk"
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#status-text")).to_contain_text("is labelled “cat” now")
    assert served.label_of("owl-07") == MISLABELLED["owl-07"]
    expect(page.locator('.suspect[data-id="owl-07"]')).to_be_visible()


def test_items_page_by_page_a_new_one_and_one_less(page: Page, served: Served) -> None:
    opened(page, served, "gallery")
    first = served.call("/v1/items?limit=20")
    following = served.call(f"/v1/items?limit=20&after={first['next']}")
    for button, shown in (("Next", following), ("Previous", first)):
        page.get_by_role("button", name=button).click()
        expect(page.locator("#items th")).to_have_text([item["id"] for item in shown["items"]])
    adding = page.locator("#add-form")
    adding.get_by_label("Label").fill("yak")
    adding.get_by_label("Id, if it has one").fill("a yak / 1")
    adding.get_by_label("Vector").fill("9 9 9 9 9 9")
    adding.get_by_role("button", name="Add").click()
    expect(page.locator("#status-text")).to_contain_text("is added with the label “yak”")
    page.locator("#items-filter").get_by_label("Label").fill("yak")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("#items tr")).to_have_count(1)
    expect(page.locator("#items th")).to_have_text("a yak / 1")
    size = served.call("/v1/model")["size"]
    remove = page.locator('.suspect[data-id="dog-11"]').get_by_role("button", name="Remove")
    remove.click()
    page.get_by_role("button", name="Keep it").click()
    assert served.call("/v1/model")["size"] == size
    expect(remove).to_be_focused()
    remove.click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.locator("#status-text")).to_have_text("Item dog-11 is removed.")
    assert served.call("/v1/model")["size"] == size - 1


def test_a_token_is_asked_for_and_kept_by_this_tab_alone(page: Page, guarded: Served) -> None:
    page.goto(guarded.address)
    expect(page.get_by_label("Token")).to_be_focused()
    expect(page.get_by_role("tablist")).to_be_hidden()
    page.get_by_label("Token").fill(READ_TOKEN[::-1])
    page.keyboard.press("Enter")
    expect(page.locator("#token-problem")).not_to_be_empty()
    page.get_by_label("Token").fill(READ_TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_role("tab", name="Ask")).to_be_focused()
    expect(page.locator("#use-threshold")).to_be_hidden()
    dark = io.BytesIO()
    Image.new("RGB", (40, 30), (20, 20, 20)).save(dark, "PNG")
    page.get_by_label("Image", exact=True).last.set_input_files(
        {"name": "dark.png", "mimeType": "image/png", "buffer": dark.getvalue()}
    )
    expect_answer(page, asked(guarded, vector=center_of("cat").tolist()))
    expect(page.get_by_alt_text("The picture that was asked about")).to_be_visible()
    page.get_by_role("tab", name="Gallery").click()
    expect(page.locator(".suspect").first).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("Relabel|Remove|Add"))).to_have_count(0)
    page.reload()
    expect(page.get_by_role("tab", name="Gallery")).to_be_visible()
    assert page.evaluate("JSON.stringify(localStorage)").find(READ_TOKEN) == -1
    page.get_by_role("button", name="Forget the token").click()
    expect(page.get_by_label("Token")).to_be_visible()


def test_an_old_fit_is_said_and_made_anew(page: Page, guarded: Served) -> None:
    random = np.random.default_rng(3)
    new = [
        {"label": name, "vector": (center_of(name) + random.normal(0, 0.8, 6)).tolist()}
        for name in CLASSES
        for _ in range(6)
    ]
    guarded.call("/v1/items", {"items": new}, "POST")
    number = guarded.call("/v1/model")["model"]
    page.goto(guarded.address)
    page.get_by_label("Token").fill(WRITE_TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator("#stale-text")).to_contain_text("of the gallery changed since the last fit")
    page.get_by_role("button", name="Fit anew").click()
    expect(page.locator("#stale")).to_be_hidden()
    expect(page.locator("#facts")).to_contain_text(f"fit {number + 1}")
