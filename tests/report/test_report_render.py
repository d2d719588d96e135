"""The page: one file, which loads nothing and lets nothing in."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from report_examples import usual

from nearsure.report import Estimate, Report, report_html, report_json

HOSTILE = (
    "</script><script>alert(1)</script><!-- \u2028 & \"quoted\" 'title' $data {{data}} \U0001f426"
)


class Elements(HTMLParser):
    """What a page consists of: elements with their attributes, and what stands in them."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self.is_open = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))
        self.is_open = True

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        self.is_open = False

    def handle_data(self, data: str) -> None:
        if self.is_open:
            tag, attributes, before = self.found[-1]
            self.found[-1] = tag, attributes, before + data

    def named(self, name: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attributes, text) for tag, attributes, text in self.found if tag == name]


def titled(title: str) -> Report:
    report = usual()[3]
    mistake = replace(report.mistakes[0], truth=title)
    about = replace(report.about, title=title)
    return replace(report, about=about, mistakes=(mistake, *report.mistakes[1:]))


def policy_of(page: str) -> dict[str, list[str]]:
    (content,) = [
        attributes["content"]
        for attributes, _ in Elements(page).named("meta")
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert content is not None
    return {words[0]: words[1:] for words in (part.split() for part in content.split(";"))}


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@pytest.mark.parametrize("title", ["Birds", HOSTILE])
def test_the_page_holds_the_document(title: str) -> None:
    report = titled(title)
    elements = Elements(report_html(report))
    (data,) = [text for attributes, text in elements.named("script") if "type" in attributes]
    assert json.loads(data) == json.loads(report_json(report))
    assert json.loads(data)["mistakes"][0]["truth"] == title
    ((_, shown),) = elements.named("title")
    assert shown == title
    assert len(elements.named("script")) == len(Elements(report_html(titled("a"))).named("script"))


def test_data_cannot_leave_its_element() -> None:
    page = report_html(titled(HOSTILE))
    start = page.index('id="report-data">') + len('id="report-data">')
    data = page[start : page.index("</script>", start)]
    assert data.isascii()
    assert not set("<>&") & set(data)
    assert data.startswith("{")
    assert data.endswith("}")


def test_policy_lets_only_the_own_scripts_and_styles_run() -> None:
    page = report_html(titled(HOSTILE))
    elements, policy = Elements(page), policy_of(page)
    scripts = [text for attributes, text in elements.named("script") if "type" not in attributes]
    styles = [text for _, text in elements.named("style")]
    assert policy["script-src"] == [digest(text) for text in scripts]
    assert policy["style-src"] == [digest(text) for text in styles]
    assert scripts
    assert styles
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == ["'none'"]
    assert policy["img-src"] == ["data:"]
    assert not any("unsafe" in word for words in policy.values() for word in words)


def test_policy_comes_before_all_that_it_rules() -> None:
    page = report_html(usual()[3])
    first = min(page.index("<style"), page.index("<script"))
    assert page.index("Content-Security-Policy") < first
    assert page.index('charset="utf-8"') < 1024


def test_the_page_loads_nothing() -> None:
    elements = Elements(report_html(titled(HOSTILE)))
    for tag, attributes, _ in elements.found:
        assert tag not in {"link", "iframe", "object", "embed", "base", "img"}
        assert not {"src", "href", "srcset", "action", "style"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)
    for _, text in elements.named("style"):
        assert not re.search(r"@import|url\(\s*['\"]?(?!data:)", text)


def test_no_marker_is_left_and_none_is_filled_within_the_data() -> None:
    page = report_html(titled("$title $data $scripts {{title}}"))
    ((_, shown),) = Elements(page).named("title")
    assert shown == "$title $data $scripts {{title}}"
    assert page.count('report-data">') == 1


def test_json_has_null_for_what_is_no_number() -> None:
    report = usual()[3]
    first = replace(report.metrics[0], estimate=Estimate(float("nan"), float("-inf"), 0.5))
    read = json.loads(report_json(replace(report, metrics=(first,))))
    assert read["metrics"][0]["estimate"] == {"value": None, "low": None, "high": 0.5}


def test_json_is_the_document() -> None:
    report = usual()[3]
    text = report_json(report)
    assert text.isascii()
    assert "\n" not in text
    assert json.loads(text) == json.loads(json.dumps(report.to_dict()))
