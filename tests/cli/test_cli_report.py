"""`nearsure report`: the document of the report package, in files."""

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
from cli_runs import fitted_model, jsonl, points, refused, succeeded, write_npz
from PIL import Image

from nearsure import NEDClassifier
from nearsure.report import gallery_report, query_report, report_html, report_json

QUERIES, TRUTH = points(60, seed=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    fitted_model(folder)
    write_npz(folder / "queries.npz", QUERIES, TRUTH)
    return folder


def test_queries_give_the_report_of_python(folder: Path) -> None:
    html, document = folder / "r.html", folder / "r.json"
    words = ["-m", folder / "model.safetensors", "--title", "Birds", "--resamples", 20]
    words += ["--mistakes", 3, "--suspects", 2, "--seed", 5]
    run = succeeded("report", folder / "queries.npz", *words, "-o", html, "--json", document)
    assert run.out == f"wrote {html}\nwrote {document}\n"
    expected = query_report(
        NEDClassifier.load(folder / "model.safetensors"),
        *(QUERIES, TRUTH),
        title="Birds",
        n_resamples=20,
        n_mistakes=3,
        n_suspects=2,
        seed=5,
    )
    assert document.read_text() == report_json(expected) + "\n"
    assert html.read_text() == report_html(expected)


def test_without_queries_the_gallery_is_asked_about_itself(folder: Path) -> None:
    words = ["report", "-m", folder / "model.safetensors", "--resamples", 20]
    run = succeeded(*words, "--json", "-")
    expected = gallery_report(
        NEDClassifier.load(folder / "model.safetensors"), title="model", n_resamples=20
    )
    assert run.json == json.loads(report_json(expected))


def test_a_folder_that_is_missing_is_made(folder: Path) -> None:
    words = ["-m", folder / "model.safetensors", "--resamples", 20]
    succeeded("report", folder / "queries.npz", *words, "-o", folder / "deep" / "er" / "r.html")
    assert (folder / "deep" / "er" / "r.html").is_file()


@pytest.mark.parametrize("ids", ["shuffled", "text"])
def test_a_model_file_shows_each_row_its_own_picture(tmp_path: Path, ids: str) -> None:
    vectors, labels = points()
    names: list[object] = [(7 * row) % 90 for row in range(90)]
    if ids == "text":
        names = [f"p{name}" for name in names]
    lines = [json.loads(line) for line in jsonl(vectors, labels.tolist(), names).splitlines()]
    for row, line in enumerate(lines):
        line["image"] = f"{row}.png"
        Image.new("RGB", (8, 8), (2 * row, 0, 0)).save(tmp_path / f"{row}.png")
    gallery = tmp_path / "g.jsonl"
    gallery.write_text("\n".join(map(json.dumps, lines)))
    succeeded("fit", gallery, "-o", tmp_path / "m.safetensors")
    words = ["-m", tmp_path / "m.safetensors", "--resamples", 20, "--json", "-"]
    said = succeeded("report", *words, "--gallery-images", gallery).json
    shown = {one["id"]: one["picture"] for one in said["audit"]["suspects"]}
    assert len(shown) > 3
    for row, address in shown.items():
        pixels = Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))
        red = pixels.convert("RGB").getpixel((4, 4))[0]  # type: ignore[index]
        assert abs(red - 2 * row) <= 2


def test_images_of_another_gallery_are_told(tmp_path: Path) -> None:
    vectors, labels = points()
    ids = [f"p{row}" for row in range(90)]
    gallery = write_npz(tmp_path / "g.npz", vectors, labels, ids=np.array(ids))
    images = np.array(["a.png"] * 90)
    other = write_npz(tmp_path / "o.npz", vectors, labels, ids=np.arange(90), images=images)
    succeeded("fit", gallery, "-o", tmp_path / "g.sqlite")
    words = ["-m", tmp_path / "g.sqlite", "--resamples", 20, "--json", "-"]
    assert "none of the ids" in succeeded("report", *words, "--gallery-images", other).err
    succeeded("fit", gallery, "-o", tmp_path / "m.safetensors")
    few = write_npz(tmp_path / "f.npz", vectors[:9], labels[:9], images=images[:9])
    words = ["-m", tmp_path / "m.safetensors", "--resamples", 20, "--json", "-"]
    assert "has 9 rows" in succeeded("report", *words, "--gallery-images", few).err


def test_pictures_of_queries_and_of_the_gallery_are_found(tmp_path: Path) -> None:
    vectors, labels = points()
    (tmp_path / "photos").mkdir()
    for name, colour in (("query.png", "red"), ("gallery.png", "blue")):
        Image.new("RGB", (40, 20), colour).save(tmp_path / "photos" / name)

    def written(path: Path, content: bytes, picture: str) -> Path:
        lines = [json.loads(line) | {"image": picture} for line in content.splitlines()]
        path.write_text("\n".join(map(json.dumps, lines)))
        return path

    gallery = written(tmp_path / "g.jsonl", jsonl(vectors, labels.tolist()), "gallery.png")
    queries = written(tmp_path / "q.jsonl", jsonl(QUERIES, TRUTH.tolist()), "query.png")
    words = ["--images-root", tmp_path / "photos"]
    succeeded("fit", gallery, "-o", tmp_path / "m.safetensors")
    succeeded("fit", gallery, "-o", tmp_path / "m.sqlite", *words)
    words += ["--resamples", 20, "--json", "-"]
    for model, more in (("m.safetensors", ["--gallery-images", gallery]), ("m.sqlite", [])):
        said = succeeded("report", queries, "-m", tmp_path / model, *words, *more).json
        assert said["mistakes"]
        for mistake in said["mistakes"]:
            assert mistake["picture"].startswith("data:image/")
            assert all(one["picture"] for one in mistake["neighbors"])
            assert mistake["picture"] != mistake["neighbors"][0]["picture"]
        assert all(suspect["picture"] for suspect in said["audit"]["suspects"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["queries.npz"], "Name an output file"),
        (["--labels-key", "x", "-o", "r.html"], "without QUERIES"),
        (["queries.npz", "-o", "queries.npz/r.html"], "--output: queries.npz/r.html cannot be"),
        (["queries.npz", "-o", "r.txt"], "--output must end in .html or .htm"),
        (["queries.npz", "--json", "r.html"], "--json must end in .json"),
        (["queries.npz", "--labels-key", "x", "-o", "n.html"], "queries.npz has no array 'x'"),
    ],
)
def test_a_mistake_is_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str
) -> None:
    monkeypatch.chdir(folder)
    assert sentence in refused("report", *words, "-m", "model.safetensors", "--resamples", "20")
    assert not (folder / "n.html").exists()
