"""The page in a real browser, against the real service."""

import csv
import io
import json
import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser_page import BARRIERS, WIDE, WatchedPage, expect_fit, opened_browser, resize
from browser_service import (
    CLASSES,
    HOSTILE,
    LARGE_IDS,
    LARGE_LABELS,
    MISLABELLED,
    READ_TOKEN,
    WRITE_TOKEN,
    Served,
    center_of,
    make_empty,
    make_gallery,
    make_large_numbered,
    make_long_named,
    serving,
)
from PIL import Image
from playwright.sync_api import Browser, Page, Route, expect

from nearsure.arrays import AnyArray


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "gallery.sqlite"
    make_gallery(path)
    return path


def copied(gallery: Path, folder: Path) -> Path:
    return Path(shutil.copy(gallery, folder))


@pytest.fixture(scope="module")
def served(gallery: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """For tests that change nothing."""
    with serving(copied(gallery, tmp_path_factory.mktemp("shared"))) as running:
        yield running


@pytest.fixture(scope="module")
def report(served: Served) -> bytes:
    return json.dumps(served.call("/v1/report")).encode()


@pytest.fixture
def fresh(gallery: Path, report: bytes, tmp_path: Path) -> Iterator[Served]:
    """A gallery of the test's own."""
    with serving(copied(gallery, tmp_path), report=report) as running:
        yield running


@pytest.fixture
def guarded(gallery: Path, report: bytes, tmp_path: Path) -> Iterator[Served]:
    with serving(copied(gallery, tmp_path), tokens=True, report=report) as running:
        yield running


@pytest.fixture(scope="module")
def watched(browser: Browser) -> WatchedPage:
    return WatchedPage(browser)


@pytest.fixture
def reader(watched: WatchedPage) -> Iterator[Page]:
    """One page for all tests that only ask; it is loaded once."""
    resize(watched.page, WIDE)
    yield watched.page
    watched.check_peace()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of the test's own."""
    watched = WatchedPage(browser)
    yield watched.page
    watched.page.context.close()
    watched.check_peace()


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
    names = [str(neighbor["id"]) for neighbor in answer["neighbors"]]
    expect(page.locator("#neighbors .link")).to_have_text(names)
    expect(page.locator("#class-shares > li")).to_have_count(len(answer["classes"]))


def asked(served: Served, **query: object) -> dict[str, Any]:
    answer: dict[str, Any] = served.call("/v1/predict", {**query, "neighbors": 12, "classes": 6})
    return answer


def paste(page: Page, text: str) -> None:
    page.locator("#vector").fill(text)
    page.locator('[data-mode="paste"]').get_by_role("button", name="Ask").click()


def test_a_pasted_vector_is_answered(reader: Page, served: Served) -> None:
    opened(reader, served)
    choose(reader, "Vector")
    vectors = {name: (center_of(name) + 0.25).tolist() for name in ("cat", "dog", "owl")}
    paste(reader, str(vectors["cat"]))
    expect_answer(reader, asked(served, vector=vectors["cat"]))
    paste(reader, " ".join(map(str, vectors["dog"])))
    expect_answer(reader, asked(served, vector=vectors["dog"]))
    paste(reader, ",\n".join(map(str, vectors["owl"])))
    expect_answer(reader, asked(served, vector=vectors["owl"]))
    expect(reader.locator("#answer-label")).to_have_text("owl")
    expect(reader.locator(".chip")).to_have_text("Known")
    paste(reader, "-30 -30 -30 -30 -30 -30")
    expect(reader.locator(".chip")).to_have_text("Unknown")
    for text, said in (
        ("", "Paste a vector of 6 numbers first."),
        ("1 2 3", "The gallery holds vectors of 6 numbers. Got 3 instead."),
        ("1 2 3 4 5 cat", 'Entry 6 must be a finite number. Got "cat" instead.'),
        ("[1, 2", "This begins like JSON but is not valid."),
    ):
        paste(reader, text)
        expect(reader.get_by_role("alert").filter(has_text=said)).to_be_visible()
        expect(reader.locator("#answer-label")).to_have_count(0)


def test_what_an_answer_rests_on_is_said(reader: Page, served: Served) -> None:
    opened(reader, served)
    choose(reader, "Vector")
    vector = (center_of("cat") + 0.25).tolist()
    answer = asked(served, vector=vector)
    others = [one for one in answer["neighbors"] if one["label"] != "cat"]
    start = "Support of this label: "
    for changed, said in (
        ({"p_neighbors": None, "p_head": None}, ""),
        (
            {"p_neighbors": 0.62, "p_head": 0.91},
            f"{start}62% by the neighbours alone, 91% by the class as a whole.",
        ),
        (
            {"p_neighbors": 0.0, "p_head": 0.88, "neighbors": others},
            f"{start}no neighbour is of this class, 88% by the class as a whole.",
        ),
        (
            {"p_neighbors": 0.3, "p_head": None},
            f"{start}30% by the neighbours alone, the class is newer than the fit.",
        ),
    ):
        reader.route("**/v1/predict", partial(_fulfil, {**answer, **changed}))
        paste(reader, str(vector))
        expect(reader.locator("#head-note")).to_have_text(said)
        reader.unroute("**/v1/predict")


def _fulfil(document: dict[str, Any], route: Route) -> None:
    route.fulfill(json=document)


def as_npy(rows: AnyArray, kind: str) -> bytes:
    content = io.BytesIO()
    np.save(content, rows.astype(kind))
    return content.getvalue()


def test_vectors_of_files_are_asked_about(reader: Page, served: Served) -> None:
    opened(reader, served)
    choose(reader, "File")
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
        reader.locator("#vector-file").set_input_files(
            {"name": name, "mimeType": "application/octet-stream", "buffer": content}
        )
        expect_answer(reader, answers[0])
        has_rows = not name.startswith("one.")
        expect(reader.locator("#row-choice")).to_be_visible(visible=has_rows)
        if has_rows:
            reader.get_by_label("Row").fill("2")
            reader.locator("#row-choice").get_by_role("button", name="Ask").click()
            expect_answer(reader, answers[1])


def test_a_wrong_kind_of_file_is_one_sentence(reader: Page, served: Served) -> None:
    opened(reader, served)
    choose(reader, "File")
    files = {
        "photo.png": (
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
            "photo.png holds no vectors that can be read",
        ),
        "vectors.npz": (b"PK\x03\x04\x14\0", "vectors.npz holds no vectors that can be read"),
        "titles.csv": (b"id,a,b,c,d,e,f\n", "titles.csv has column titles, but no rows."),
        "texts.csv": (b"text,label\npay,bill\n", "no columns of numbers, but only text, label."),
    }
    for name, (content, sentence) in files.items():
        reader.locator("#vector-file").set_input_files(
            {"name": name, "mimeType": "application/octet-stream", "buffer": content}
        )
        problem = reader.locator("#question-problem")
        expect(problem).to_contain_text(sentence)
        assert len(str(problem.text_content())) < 120


def test_a_text_is_asked_about_and_the_slider_judges_at_once(reader: Page, served: Served) -> None:
    opened(reader, served)
    choose(reader, "Text")
    reader.get_by_role("textbox", name="Text").fill("surely an owl")
    reader.locator('[data-mode="text"]').get_by_role("button", name="Ask").click()
    expect_answer(reader, asked(served, text="surely an owl"))
    choose(reader, "Item")
    reader.get_by_role("searchbox", name="An item of the gallery").fill("dog-05")
    reader.get_by_role("button", name="dog dog-05").click()
    answer = asked(served, item="dog-05")
    expect_answer(reader, answer)
    expect(reader.locator("#answer .thumb img")).to_be_visible()
    expect(reader.locator("#promises button").first).to_be_visible()
    slider = reader.get_by_role("slider")
    for threshold, accepted in ((0.05, True), (1.0, False)):
        slider.fill(str(threshold))
        judged = reader.locator("#judgement")
        expect(judged).to_contain_text("Accepted." if accepted else "Not accepted.")
        assert (answer["confidence"] >= threshold) == accepted
    slider.fill("0.5")
    points = served.call("/v1/report")["operating_points"]
    point = next(one for one in points if one["threshold"] >= 0.5)
    right = {name: 100 * share for name, share in point["precision"].items()}
    expect(reader.locator("#threshold-sentence")).to_have_text(
        f"Accept above 0.50: {100 * point['coverage']:.0f}% of queries, "
        f"{right['value']:.1f}% right ({right['low']:.1f} to {right['high']:.1f})."
    )
    slider.press("ArrowRight")
    expect(slider).to_have_attribute("aria-valuetext", "0.505")


def test_a_threshold_is_used_and_given_up(page: Page, fresh: Served) -> None:
    fresh.call("/v1/threshold", {"precision": 0.999}, "PUT")
    opened(page, fresh)
    expect(page.get_by_role("radio", name="Text")).to_be_checked()
    expect(page.get_by_role("radio", name="Image")).to_be_hidden()
    in_use = page.locator("#threshold-in-use")
    expect(in_use).to_have_text("In use: precision 99.9%.")
    choose(page, "Item")
    page.locator("#item-choices button").first.click()
    expect(page.locator("#judgement")).to_contain_text("No threshold reaches the precision in use")
    page.get_by_role("button", name="Use none").click()
    expect(in_use).to_have_text("No threshold is in use.")
    expect(page.locator("#judgement")).to_contain_text("No threshold. Move the slider")
    expect(page.get_by_role("button", name="Use none")).to_be_hidden()
    slider = page.get_by_role("slider")
    expect(slider).to_be_focused()
    assert fresh.call("/v1/threshold")["precision"] is None
    slider.fill("0.77")
    page.get_by_role("button", name="Use this threshold").click()
    expect(in_use).to_have_text("This threshold is in use.")
    assert fresh.call("/v1/threshold")["threshold"] == 0.77
    # Unknown queries are expected, and the classes are too few to promise anything.
    fresh.call("/v1/threshold", {"precision": 0.3}, "PUT")
    page.reload()
    expect(in_use).to_have_text("In use: precision 30%.")


def test_nothing_bars_the_way(reader: Page, served: Served) -> None:
    opened(reader, served)
    choose(reader, "Item")
    reader.locator("#item-choices button").first.click()
    expect(reader.locator("#neighbors > li").first).to_be_visible()
    waiting = {"ask": "#promises button", "gallery": ".suspect", "report": "#report h2"}
    for tab, sign in waiting.items():
        opened(reader, served, tab)
        expect(reader.locator(sign).first).to_be_visible()
        for scheme in ("dark", "light"):
            reader.emulate_media(color_scheme=scheme)
            assert reader.evaluate(BARRIERS) == []
        expect_fit(reader)


@pytest.mark.parametrize("tab", ["ask", "gallery"])
def test_the_tab_key_reaches_everything(reader: Page, served: Served, tab: str) -> None:
    opened(reader, served, tab)
    for sign in {"ask": ["#promises button"], "gallery": ["#items tr", ".suspect"]}[tab]:
        expect(reader.locator(sign).first).to_be_visible()
    goals = reader.evaluate(
        """() => {
          const kinds = "button, input, textarea, a[href], [tabindex='0']";
          const goals = [...document.querySelectorAll(kinds)].filter((one) => one.checkVisibility()
            && !one.disabled && one.tabIndex >= 0 && !(one.type === "radio" && !one.checked));
          window.unreached = new Set(goals);
          document.addEventListener("focusin", (event) => window.unreached.delete(event.target));
          document.activeElement.blur();
          return goals.length;
        }"""
    )
    assert goals > 10
    for _ in range(goals + 5):
        reader.keyboard.press("Tab")
    assert reader.evaluate("[...window.unreached].map((one) => one.outerHTML)") == []


def test_tabs_by_keyboard_the_live_report_and_hostile_labels(reader: Page, served: Served) -> None:
    opened(reader, served)
    choose(reader, "Item")
    reader.get_by_role("searchbox", name="An item of the gallery").fill("odd-02")
    reader.locator('#item-choices button[value="odd-02"]').click()
    expect(reader.locator("#answer-label")).to_have_text(HOSTILE)
    reader.get_by_role("tab", name="Ask").focus()
    for key, name in (("ArrowRight", "Gallery"), ("Home", "Ask"), ("ArrowLeft", "Report")):
        reader.keyboard.press(key)
        expect(reader.get_by_role("tab", name=name)).to_be_focused()
        expect(reader.get_by_role("tabpanel", name=name)).to_be_visible()
        expect(reader.get_by_role("tabpanel")).to_have_count(1)
    accuracy = next(m for m in served.call("/v1/report")["metrics"] if m["key"] == "accuracy")
    expect(reader.locator("#report")).to_contain_text(f"{100 * accuracy['estimate']['value']:.1f}%")
    expect(reader.locator("#report")).to_contain_text(HOSTILE)
    assert reader.locator("#report canvas").count() > 0
    assert reader.evaluate("window.fooled === undefined")
    assert reader.locator('img[src="x"]').count() == 0


def test_two_items_are_compared(reader: Page, served: Served) -> None:
    opened(reader, served, "compare")
    reader.locator("#first-content").fill("cat-00")
    reader.locator("#second-content").fill("cat-01")
    reader.get_by_label("Expected share of same pairs, %").fill("10")
    reader.get_by_role("button", name="Compare", exact=True).click()
    two = {"first": {"item": "cat-00"}, "second": {"item": "cat-01"}, "base_rate": 0.1}
    answer = served.call("/v1/compare", two)
    expect(reader.locator("#comparison")).to_contain_text(answer["sentence"])
    shown = reader.locator("#comparison strong").inner_text()
    assert float(shown.strip("<>%")) == pytest.approx(100 * answer["probability"], abs=0.51)
    reader.locator("#second-content").fill("")
    reader.get_by_role("button", name="Compare", exact=True).click()
    expect(reader.locator("#compare-problem")).to_have_text("The second of the two is missing.")
    expect_fit(reader)


def test_a_suspect_is_relabelled_with_one_click_and_stays_so(page: Page, fresh: Served) -> None:
    opened(page, fresh, "gallery")
    suspect = page.locator('.suspect[data-id="cat-03"]')
    expect(suspect).to_contain_text("labelled dog")
    suspect.get_by_role("button", name="Relabel to cat").click()
    expect(page.locator("#status-text")).to_have_text(
        "Item cat-03 is now labelled “cat”; it was “dog”."
    )
    expect(suspect).to_have_count(0)
    assert page.evaluate("document.activeElement.closest('#suspects, #suspects-heading') !== null")
    assert fresh.label_of("cat-03") == "cat"
    page.reload()
    expect(page.locator('#items tr[data-id="cat-03"] td').first).to_have_text("cat")
    expect(page.locator(".suspect")).to_have_count(len(MISLABELLED) - 1)
    expect(suspect).to_have_count(0)
    check_undo(page, fresh)


def check_undo(page: Page, fresh: Served) -> None:
    suspect = page.locator('.suspect[data-id="owl-07"]')

    def relabel() -> None:
        suspect.get_by_role("button", name="Other label").click()
        page.get_by_label("New label").fill("hawk")
        page.keyboard.press("Enter")
        expect(page.locator("#status-text")).to_contain_text("is now labelled “hawk”")
        expect(suspect).to_have_count(0)
        assert fresh.label_of("owl-07") == "hawk"

    def expect_undone() -> None:
        expect(page.locator("#status-text")).to_have_text("Item owl-07 is labelled “cat” again.")
        expect(page.locator("#status-undo")).to_be_hidden()
        expect(suspect.get_by_role("button", name="Label is correct")).to_be_focused()
        assert fresh.label_of("owl-07") == MISLABELLED["owl-07"]

    relabel()
    page.keyboard.press("Control+z")
    expect_undone()
    relabel()
    page.get_by_role("tab", name="Gallery").focus()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Undo")).to_be_focused()
    page.keyboard.press("Enter")
    expect_undone()


def test_items_page_by_page_a_new_one_and_one_less(page: Page, fresh: Served) -> None:
    opened(page, fresh, "gallery")
    first = fresh.call("/v1/items?limit=20")
    following = fresh.call(f"/v1/items?limit=20&after={first['next']}")
    for button, shown in (("Next", following), ("Previous", first)):
        page.get_by_role("button", name=button).click()
        expect(page.locator("#items th")).to_have_text([item["id"] for item in shown["items"]])
    adding = page.locator("#add-form")
    adding.get_by_label("Label").fill("yak")
    adding.get_by_label("Id (optional)").fill("a yak / 1")
    adding.get_by_label("Vector").fill("9 9 9 9 9 9")
    adding.get_by_role("button", name="Add").click()
    expect(page.locator("#status-text")).to_contain_text("is added with the label “yak”")
    page.locator("#items-filter").get_by_label("Label").fill("yak")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("#items tr")).to_have_count(1)
    expect(page.locator("#items th")).to_have_text("a yak / 1")
    size = fresh.call("/v1/model")["size"]
    remove = page.locator("#items").get_by_role("button", name="Remove")
    remove.click()
    page.get_by_role("button", name="Keep it").click()
    assert fresh.call("/v1/model")["size"] == size
    expect(remove).to_be_focused()
    remove.click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.locator("#status-text")).to_have_text("Item a yak / 1 is removed.")
    assert fresh.call("/v1/model")["size"] == size - 1
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#status-text")).to_have_text("Item a yak / 1 is back.")
    assert fresh.label_of("a%20yak%20%2F%201") == "yak"


def suspects_of(served: Served) -> set[str]:
    return {str(one["id"]) for one in served.call("/v1/audit")["suspects"]}


def test_labels_are_reviewed_by_buttons_and_keys_and_all_is_undone(
    page: Page, fresh: Served
) -> None:
    opened(page, fresh, "gallery")
    progress, said = page.locator("#review-progress"), page.locator("#status-text")
    expect(progress).to_have_text(f"0 of {len(MISLABELLED)} reviewed")
    expect(page.locator("#review")).to_contain_text("C label is correct")
    expect(page.locator(".suspect .main")).to_have_count(0)
    first, second, third = page.locator(".suspect").evaluate_all(
        "(all) => all.map((one) => one.dataset.id)"
    )
    row = page.locator(f'.suspect[data-id="{first}"]')
    row.get_by_role("button", name="Label is correct").click()
    expect(said).to_have_text(f"Item {first} is correctly labelled “{MISLABELLED[first]}”.")
    expect(row).to_have_count(0)
    expect(progress).to_have_text(f"1 of {len(MISLABELLED)} reviewed")
    assert first not in suspects_of(fresh)
    # By keys: the focus has moved to the next, which is skipped.
    page.keyboard.press("j")
    focused = "document.activeElement.closest('.suspect').dataset.id"
    assert page.evaluate(focused) == third
    page.keyboard.press("k")
    assert page.evaluate(focused) == second
    page.keyboard.press("x")
    expect(said).to_have_text(f"Item {second} is removed.")
    picture = f"{fresh.address}/v1/items/{second}/picture"
    assert page.request.get(picture).status == 404
    page.keyboard.press("r")
    expect(said).to_contain_text(f"Item {third} is now labelled")
    expect(progress).to_have_text(f"{len(MISLABELLED)} of {len(MISLABELLED)} reviewed")
    expect(page.locator("#suspects-note")).to_have_text("All doubtful labels are reviewed.")
    expect(page.locator("#suspects-heading")).to_be_focused()
    # All the way back: the label, the item with its picture, the review.
    page.keyboard.press("u")
    expect(said).to_have_text(f"Item {third} is labelled “{MISLABELLED[third]}” again.")
    page.keyboard.press("Control+z")
    expect(said).to_have_text(f"Item {second} is back.")
    assert fresh.label_of(second) == MISLABELLED[second]
    assert page.request.get(picture).status == 200
    page.reload()
    # What was confirmed is remembered.
    expect(progress).to_have_text(f"1 of {len(MISLABELLED)} reviewed")
    expect(row).to_have_count(0)
    rest = page.locator(f'.suspect[data-id="{second}"]')
    rest.get_by_role("button", name="Label is correct").focus()
    page.keyboard.press("c")
    expect(progress).to_have_text(f"2 of {len(MISLABELLED)} reviewed")
    page.keyboard.press("u")
    expect(said).to_have_text(f"Item {second} is to be reviewed again.")
    expect(rest.get_by_role("button", name="Label is correct")).to_be_focused()
    expect(progress).to_have_text(f"1 of {len(MISLABELLED)} reviewed")
    assert suspects_of(fresh) == {second, third}
    # Letters elsewhere do nothing.
    page.locator("#items-label").focus()
    page.keyboard.type("xcr")
    assert suspects_of(fresh) == {second, third}


def test_the_map_shows_classes_suspects_and_the_query(reader: Page, served: Served) -> None:
    opened(reader, served)
    choose(reader, "Text")
    reader.get_by_role("textbox", name="Text").fill("surely an owl")
    reader.locator('[data-mode="text"]').get_by_role("button", name="Ask").click()
    expect(reader.locator("#answer-label")).to_have_text("owl")
    shares = reader.locator(".neighbor-share").all_inner_texts()
    total = sum(float(text.split()[-1].strip("%")) for text in shares)
    said = reader.locator("#support-note").inner_text()
    assert f"hold {total:.1f}% of the vote" in said
    reader.get_by_role("button", name="Show on the map").click()
    canvas = reader.locator("#overview .chart-map canvas")
    expect(canvas).to_be_visible()
    drawn = canvas.evaluate(
        "(one) => Chart.getChart(one).data.datasets.map((each) => [each.label, each.data])"
    )
    data = dict(drawn)
    report = served.call("/v1/report")["map"]
    assert len(data["points"]) == len(report["ids"]) == report["n_points"]
    assert {one["id"] for one in data["suspect labels"]} == set(MISLABELLED)
    answer = asked(served, text="surely an owl")
    points = [{"text": "surely an owl"}, *({"item": one["id"]} for one in answer["neighbors"])]
    places = served.call("/v1/map/places", {"points": points})["places"]
    (query,) = data["query"]
    assert (query["x"], query["y"]) == (places[0]["x"], places[0]["y"])
    by_id = dict(zip(report["ids"], zip(report["x"], report["y"], strict=True), strict=True))
    for neighbor, place in zip(answer["neighbors"], places[1:], strict=True):
        assert (place["x"], place["y"]) == pytest.approx(by_id[neighbor["id"]], abs=1e-4)
    reader.locator("#overview").get_by_label("Class", exact=True).select_option(HOSTILE)
    reader.locator("#overview").get_by_role("button", name=HOSTILE).first.click()
    window = reader.get_by_role("dialog")
    expect(window).to_contain_text("in the gallery")
    expect(window.locator(".examples img").first).to_be_visible()
    window.get_by_role("button", name="Close").click()
    expect(window).to_be_hidden()


def test_several_texts_are_asked_about_and_added(page: Page, fresh: Served) -> None:
    """A row for each, the whole answer on a click, a CSV file; texts stand in place of pictures."""
    opened(page, fresh)
    choose(page, "Text")
    texts = ["an owl", "a cat, it says", '=a "dog"']
    page.get_by_role("textbox", name="Text").fill("\n".join(texts))
    page.get_by_label("Each line is a query").check()
    page.locator('[data-mode="text"]').get_by_role("button", name="Ask").click()
    answers = [asked(fresh, text=text) for text in texts]
    rows = page.locator("#several-rows tr")
    expect(rows.locator("th")).to_have_text(texts)
    expect(rows.locator("td:nth-child(2)")).to_have_text([str(one["label"]) for one in answers])
    rows.nth(1).get_by_role("button").click()
    expect_answer(page, answers[1])
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    with download.value.path().open(newline="") as file:
        written = list(csv.DictReader(file))
    assert [row["name"] for row in written] == [*texts[:2], f"'{texts[2]}"]
    assert [float(row["confidence"]) for row in written] == [one["confidence"] for one in answers]
    page.get_by_role("tab", name="Gallery").click()
    adding = page.locator("#add-form")
    adding.get_by_label("Label").fill("yak")
    adding.get_by_label("Texts, one per line").fill("an owl, or a yak\n\na dog, or a yak")
    adding.get_by_role("button", name="Add").click()
    expect(page.locator("#status-text")).to_contain_text("2 items are added with the label “yak”")
    added = fresh.call("/v1/items?label=yak")["items"]
    assert sorted(item["text"] for item in added) == ["a dog, or a yak", "an owl, or a yak"]
    page.locator("#items-filter").get_by_label("Label").fill("yak")
    page.get_by_role("button", name="Show", exact=True).click()
    row = page.locator("#items tr").filter(has_text="an owl, or a yak")
    row.get_by_role("button", name="Relabel").click()
    expect(page.get_by_role("dialog")).to_contain_text("an owl, or a yak")


def test_several_images_are_dropped_and_added(page: Page, guarded: Served) -> None:
    """One that is no picture is a row of its own; pictures are shown larger on a click."""
    page.goto(guarded.address)
    page.get_by_label("Token").fill(WRITE_TOKEN)
    page.keyboard.press("Enter")
    files: list[Any] = [{"name": "a.txt", "mimeType": "text/plain", "buffer": b"no picture"}]
    for name, shade in (("dark.png", 20), ("light.png", 230)):
        content = io.BytesIO()
        Image.new("RGB", (400, 300), (shade,) * 3).save(content, "PNG")
        files.append({"name": name, "mimeType": "image/png", "buffer": content.getvalue()})
    page.get_by_label("Images", exact=True).first.set_input_files(files)
    rows = page.locator("#several-rows tr")
    expect(rows.locator("td:nth-child(2)")).to_have_text(
        ["This file is not a picture.", "cat", "owl"]
    )
    page.get_by_role("tab", name="Gallery").click()
    adding = page.locator("#add-form")
    adding.get_by_label("Label").fill("yak")
    adding.get_by_label("Images").set_input_files(files[1:])
    adding.get_by_role("button", name="Add").click()
    expect(page.locator("#status-text")).to_contain_text("2 items are added")
    page.locator("#items-filter").get_by_label("Label").fill("yak")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("#items tr")).to_have_count(2)
    page.locator("#items .thumb img").first.click()
    large = page.get_by_role("dialog", name="Picture").locator("img")
    expect(large).to_be_visible()
    assert large.evaluate("(image) => image.naturalWidth") == 320


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
    page.get_by_label("Images", exact=True).first.set_input_files(
        {"name": "dark.png", "mimeType": "image/png", "buffer": dark.getvalue()}
    )
    expect_answer(page, asked(guarded, vector=center_of("cat").tolist()))
    expect(page.get_by_alt_text("The picture of the query")).to_be_visible()
    page.get_by_role("tab", name="Gallery").click()
    expect(page.locator(".suspect").first).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("Relabel|Remove|Add"))).to_have_count(0)
    page.reload()
    expect(page.locator(".suspect").first).to_be_visible()
    page.evaluate(
        """() => {
          sessionStorage.setItem("nearsure-token", "taken back");
          document.querySelector("#items button").click();
        }"""
    )
    page.get_by_label("Token").fill(READ_TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_role("tab", name="Ask")).to_be_focused()
    expect(page.locator("#question-problem")).to_be_empty()
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
    page.get_by_role("button", name="Refit").click()
    expect(page.locator("#stale")).to_be_hidden()
    expect(page.locator("#facts")).to_contain_text(f"fit {number + 1}")


def test_the_longest_names_break_nothing(page: Page, report: bytes, tmp_path: Path) -> None:
    make_long_named(tmp_path / "long.sqlite")
    with serving(tmp_path / "long.sqlite", report=report) as served:
        opened(page, served)
        choose(page, "Item")
        page.locator("#item-choices button").first.click()
        card = page.locator("#neighbors .link").first
        expect(card).to_have_attribute("title", re.compile("^Ask about item x{196}-0"))
        expect(
            page.get_by_role("button", name=re.compile("^Ask about item x{196}-0"))
        ).to_have_count(12)
        height = page.locator("#neighbors .neighbor-id").first.evaluate("(one) => one.clientHeight")
        assert height < 50
        expect_fit(page)
        opened(page, served, "gallery")
        expect(page.locator(".suspect")).to_have_count(1)
        expect_fit(page)
        page.locator(".suspect").get_by_role("button", name="Relabel to").click()
        expect(page.get_by_role("button", name="Undo")).to_be_visible()
        expect_fit(page)


def test_large_integers_name_the_item_that_is_shown(page: Page, tmp_path: Path) -> None:
    make_large_numbered(tmp_path / "large.sqlite")
    ids, (first_label, second_label) = list(map(str, LARGE_IDS)), map(str, LARGE_LABELS)
    with serving(tmp_path / "large.sqlite") as served:

        def labels() -> dict[str, str]:
            items = served.call("/v1/items")["items"]
            return {str(item["id"]): str(item["label"]) for item in items}

        expected = labels()
        assert list(expected) == ids
        opened(page, served, "gallery")
        expect(page.locator("#items th")).to_have_text(ids)

        # By hand, in the table of items.
        page.locator(f'#items tr[data-id="{ids[1]}"]').get_by_role("button", name="Relabel").click()
        page.get_by_label("New label").fill(second_label)
        page.keyboard.press("Enter")
        expect(page.locator("#status-text")).to_contain_text(
            f"Item {ids[1]} is now labelled “{second_label}”; it was “{first_label}”."
        )
        expected[ids[1]] = second_label
        assert labels() == expected
        page.get_by_role("button", name="Undo").click()
        expect(page.locator("#status-text")).to_contain_text("again")
        expected[ids[1]] = first_label
        assert labels() == expected
        page.locator(f'#items tr[data-id="{ids[1]}"]').get_by_role("button", name="Remove").click()
        page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        expect(page.locator("#status-text")).to_have_text(f"Item {ids[1]} is removed.")
        del expected[ids[1]]
        assert labels() == expected

        # A suspect, with the label of its neighbours.
        suspect = page.locator(f'.suspect[data-id="{ids[3]}"]')
        suspect.get_by_role("button", name=f"Relabel to {first_label}").click()
        expect(suspect).to_have_count(0)
        expected[ids[3]] = first_label
        assert labels() == expected

        # In the report.
        opened(page, served, "report")
        page.get_by_role("button", name=f"Remove {ids[9]}").click()
        page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        expect(page.locator("#status-text")).to_have_text(f"Item {ids[9]} is removed.")
        del expected[ids[9]]
        assert labels() == expected

        # And as an item that is asked about, beside its neighbours.
        opened(page, served)
        choose(page, "Item")
        page.locator(f'#item-choices button[value="{ids[2]}"]').click()
        expect_answer(page, asked(served, item=ids[2]))


class Busy:
    """Turns requests away, so many times."""

    def __init__(self, status: int, times: int) -> None:
        self.status, self.times = status, times

    def __call__(self, route: Route) -> None:
        if self.times == 0:
            route.continue_()
            return
        self.times -= 1
        problem = {"error": "overloaded", "message": "Too many wait."}
        route.fulfill(status=self.status, json=problem, headers={"Retry-After": "0.01"})


def test_a_busy_service_is_asked_again(page: Page, fresh: Served) -> None:
    # Asked once and three times again: this one fails, and so do three pictures.
    busy = {"**/v1/audit": Busy(503, 4), "**/picture": Busy(429, 12), "**/v1/model": Busy(429, 3)}
    for address, answer in busy.items():
        page.route(address, answer)
    opened(page, fresh, "gallery")
    expect(page.locator("#suspects-note")).to_contain_text("Too many wait.")
    expect(page.locator("#items tr")).to_have_count(20)
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".suspect")).to_have_count(len(MISLABELLED))
    expect(page.locator("#suspects-heading")).to_be_focused()
    expect(page.get_by_role("button", name="Try again")).to_have_count(0)
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#items img")).to_have_count(20)
    assert [one.times for one in busy.values()] == [0, 0, 0]
    page.route("**/v1/items?*", lambda route: route.abort())
    page.get_by_role("button", name="Previous").click()
    expect(page.locator("#items-place")).to_contain_text("The service does not respond.")
    page.unroute("**/v1/items?*")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#items-place")).to_contain_text("1 to 20 of")


def test_an_empty_gallery_says_what_to_do(page: Page, report: bytes, tmp_path: Path) -> None:
    make_empty(tmp_path / "empty.sqlite")
    with serving(tmp_path / "empty.sqlite", report=report) as served:
        opened(page, served)
        expect(page.locator("#facts")).to_have_text("0 items · 6 dimensions · not fitted yet")
        expect(page.locator("#stale-text")).to_contain_text("The gallery is empty")
        expect(page.get_by_role("button", name="Fit")).to_be_hidden()
        expect(page.get_by_role("slider")).to_be_hidden()
        choose(page, "Item")
        expect(page.locator("#item-found")).to_have_text(
            "The gallery holds no items yet. Add some under Gallery."
        )
        choose(page, "Vector")
        paste(page, "1 2 3 4 5 6")
        problem = page.locator("#question-problem")
        expect(problem).to_have_text("Nothing is fitted yet, so no query can be answered.")
        items = [
            {"label": name, "vector": (center_of(name) + 0.1 * place).tolist()}
            for name in ("cat", "dog")
            for place in range(8)
        ]
        served.call("/v1/items", {"items": items}, "POST")
        opened(page, served, "gallery")
        expect(page.locator("#suspects-note")).to_contain_text("as soon as the gallery is fitted")
        adding = page.locator("#add-form")
        adding.get_by_label("Label").fill("cat")
        adding.get_by_label("Vector").fill("4 0 0 0 0 1")
        adding.get_by_role("button", name="Add").click()
        expect(page.locator("#facts")).to_contain_text("17 items")
        too_few = {"error": "too_few_items", "message": "POST /v1/items."}
        page.route("**/v1/refit", lambda route: route.fulfill(status=409, json=too_few))
        page.get_by_role("button", name="Fit").click()
        expect(page.locator("#problem-text")).to_contain_text("A fit needs two items or more")
        expect(page.locator("#status-text")).to_be_empty()
        page.unroute("**/v1/refit")
        opened(page, served)
        paste(page, "1 2 3 4 5 6")
        expect(problem).not_to_be_empty()
        page.get_by_role("button", name="Fit").click()
        expect(page.locator("#facts")).to_have_text("17 items · 2 classes · 6 dimensions · fit 1")
        expect(problem).to_be_empty()
        expect(page.locator("#problem")).to_be_hidden()
        expect(page.locator("#answer-body")).to_contain_text("Choose a query")
        expect(page.locator("#suspects-note")).to_have_text(
            "No label disagrees with its neighbours."
        )
