"""Images and texts become files that the other commands take."""

import csv
import json
import re
import sys
from functools import partialmethod
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from cli_runs import nearsure, refused, succeeded
from numpy.typing import NDArray
from PIL import Image
from rich.progress import Progress

from nearsure.classifier import NEDClassifier
from nearsure.embedding_files import open_embeddings, open_records
from nearsure.engines.sqlite import SqliteEngine
from nearsure.errors import BrokenImageError


class Letters:
    """How often each letter occurs."""

    kind = "text"
    dimension = 26
    version = "1"

    def encode(self, inputs: list[str]) -> NDArray[np.float32]:
        return np.array(
            [[text.count(chr(97 + i)) for i in range(26)] for text in inputs], np.float32
        )


class Sizes:
    """Width and height, of what Pillow can open."""

    kind = "image"
    dimension = 2

    def encode(self, inputs: list[bytes]) -> NDArray[np.float32]:
        if any(not data.startswith(b"\x89PNG") for data in inputs):
            raise BrokenImageError("Image 1 cannot be decoded: it is no PNG.")
        return np.array([[len(data), 1] for data in inputs], np.float32)


@pytest.fixture(autouse=True)
def encoders(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("encoders_of_tests")
    module.letters, module.sizes = Letters(), Sizes()  # type: ignore[attr-defined]
    module.others = Letters()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.csv"
    # Some are labelled wrongly, so that there is something to fit.
    labels = [i % 2 if i % 7 != 6 else 1 - i % 2 for i in range(40)]
    rows = [
        f"t{i},{'pay bill' if i % 2 else 'rain sun'} {'x' * i},{label}"
        for i, label in enumerate(labels)
    ]
    path.write_text("\n".join(["id,text,label", *rows]), encoding="utf-8")
    return path


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name in ("cat/1.png", "cat/2.png", "dog/1.png"):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(path)
    return tmp_path / "photos"


@pytest.mark.parametrize("suffix", ["npz", "jsonl", "csv", "parquet"])
def test_texts_can_be_read_back(texts: Path, tmp_path: Path, suffix: str) -> None:
    output = tmp_path / f"vectors.{suffix}"
    run = nearsure("embed", texts, "--encoder", "encoders_of_tests:letters", "-o", output)
    assert (run.code, run.err) == (0, "")
    with open_embeddings(output) as stream:
        chunk = stream.read_all()
    assert chunk.vectors.shape == (40, 26)
    assert chunk.ids is not None
    assert chunk.labels is not None
    assert chunk.ids.tolist()[:2] == ["t0", "t1"]
    assert [str(label) for label in chunk.labels[:3]] == ["0", "1", "0"]
    assert chunk.vectors[3, ord("x") - 97] == 3
    assert chunk.texts is not None
    assert chunk.texts[1] == "pay bill x"


def test_images_carry_their_folder_and_path(photos: Path, tmp_path: Path) -> None:
    output = tmp_path / "vectors.npz"
    assert nearsure("embed", photos, "--encoder", "encoders_of_tests:sizes", "-o", output).code == 0
    with np.load(output) as file:
        assert file["labels"].tolist() == ["cat", "cat", "dog"]
        assert file["ids"].tolist() == ["cat/1.png", "cat/2.png", "dog/1.png"]
        assert file["images"].tolist() == [f"photos/{name}" for name in file["ids"]]


def test_images_are_found_from_the_folder_of_the_output(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(photos)
    output = tmp_path / "out" / "vectors.npz"
    words = ("embed", ".", "--encoder", "encoders_of_tests:sizes", "-o", "../out/vectors.npz")
    assert nearsure(*words).code == 0
    with np.load(output) as file:
        found = [(output.parent / name).resolve() for name in file["images"]]
    assert found == sorted(photos.rglob("*.png"))


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        (np.zeros((1, 26)), "shape (16, 26)"),
        (np.zeros((16, 3)), "shape (16, 26)"),
        (np.full((16, 26), np.nan), "finite numbers"),
        (["no", "numbers"], "array of numbers"),
    ],
)
def test_what_an_encoder_returns_is_checked(
    texts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    returned: object,
    sentence: str,
) -> None:
    monkeypatch.setattr(Letters, "encode", lambda *_: returned)
    output = tmp_path / "vectors.jsonl"
    run = nearsure("embed", texts, "--encoder", "encoders_of_tests:letters", "-o", output)
    assert run.code == 2
    assert sentence in run.err
    assert not output.exists()


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (['{"text": "a", "id": 1}', '{"text": "b", "id": 1}'], "Got id 1 twice"),
        (['{"text": "a", "id": 1}', '{"text": "b", "id": "x"}'], "The ids of"),
        (['{"text": "a", "label": 1}', '{"text": "b", "label": "x"}'], "The labels of"),
    ],
)
def test_ids_and_labels_are_checked(tmp_path: Path, rows: list[str], sentence: str) -> None:
    texts = tmp_path / "t.jsonl"
    texts.write_text("\n".join(rows), encoding="utf-8")
    words = ("--encoder", "encoders_of_tests:letters", "-o", tmp_path / "v.npz")
    run = nearsure("embed", texts, *words)
    assert run.code == 2
    assert sentence in run.err


def test_an_encoder_may_lie_in_the_current_folder(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "encoder_lying_here.py").write_text(
        "import numpy as np\n"
        "class Ones:\n"
        "    kind, dimension = 'text', 2\n"
        "    def encode(self, inputs):\n"
        "        return np.ones((len(inputs), 2), np.float32)\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    run = nearsure("embed", texts, "--encoder", "encoder_lying_here:Ones", "-o", "v.npz")
    assert run.code == 0, run.err
    assert sys.path == before


def test_a_broken_image_is_listed_at_the_end(photos: Path, tmp_path: Path) -> None:
    (photos / "cat" / "2.png").write_bytes(b"no image")
    (photos / "dog" / "2.png").write_bytes(b"")
    output = tmp_path / "vectors.jsonl"
    words = ("embed", photos, "--encoder", "encoders_of_tests:sizes", "-o", output)
    run = nearsure(*words)
    assert run.code == 1
    assert "cat/2.png cannot be decoded: it is not an image of a known kind" in run.err
    assert "dog/2.png cannot be decoded: it is empty" in run.err
    assert run.err.endswith("nearsure: 2 images were left out.\n")
    with open_embeddings(output) as stream:
        assert stream.read_all().ids.tolist() == ["cat/1.png", "dog/1.png"]  # type: ignore[union-attr]
    output.unlink()
    strict = nearsure(*words, "--strict")
    assert strict.code == 2
    assert "cat/2.png cannot be decoded" in strict.err
    assert not list(tmp_path.glob("*vectors*"))


def test_a_broken_image_that_looks_like_one(photos: Path, tmp_path: Path) -> None:
    """Only the encoder finds it: the others of its batch are encoded all the same."""
    (photos / "cat" / "2.png").write_bytes(b"GIF89a is no PNG")
    output = tmp_path / "vectors.npz"
    words = ("embed", photos, "--encoder", "encoders_of_tests:sizes", "-o", output)
    run = nearsure(*words)
    assert run.code == 1
    assert "cat/2.png cannot be decoded: it is no PNG." in run.err
    with np.load(output) as file:
        assert file["ids"].tolist() == ["cat/1.png", "dog/1.png"]


def test_only_broken_images_are_an_error(photos: Path, tmp_path: Path) -> None:
    for path in photos.rglob("*.png"):
        path.write_bytes(b"no image")
    words = ("embed", photos, "--encoder", "encoders_of_tests:sizes")
    run = nearsure(*words, "-o", tmp_path / "vectors.npz")
    assert run.code == 2
    assert "None of the 3 images" in run.err
    assert not (tmp_path / "vectors.npz").exists()


@pytest.mark.parametrize("torn", [0, 1])
def test_an_interrupted_run_goes_on(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: int
) -> None:
    output = tmp_path / "vectors.npz"
    encoded: list[str] = []
    whole = Letters.encode

    def interrupted(self: Letters, inputs: list[str]) -> NDArray[np.float32]:
        if len(encoded) == 20:
            raise KeyboardInterrupt
        encoded.extend(inputs)
        return whole(self, inputs)

    words = ("embed", texts, "--encoder", "encoders_of_tests:letters", "--batch-size", 10)
    with monkeypatch.context() as patched:
        patched.setattr(Letters, "encode", interrupted)
        run = nearsure(*words, "-o", output)
    assert run.code == 130
    assert run.err == "nearsure: Interrupted; run the same command again to resume.\n"
    assert not output.exists()
    partial = tmp_path / "vectors.npz.partial"
    if torn:
        partial.write_bytes(partial.read_bytes()[:-7])
    before, encoded = set(encoded), []

    def counted(self: Letters, inputs: list[str]) -> NDArray[np.float32]:
        encoded.extend(inputs)
        return whole(self, inputs)

    monkeypatch.setattr(Letters, "encode", counted)
    run = nearsure(*words, "-o", output)
    assert run.code == 0
    assert f"resuming: {19 if torn else 20} of 40 are already encoded" in run.err
    assert len(encoded) == 20 + torn
    assert len(before.intersection(encoded)) == torn
    assert not partial.exists()
    with open_embeddings(output) as stream:
        points = stream.read_all()
    assert points.texts is not None
    np.testing.assert_array_equal(points.vectors, whole(Letters(), points.texts))  # type: ignore[arg-type]


def test_what_another_encoder_left_is_not_taken(texts: Path, tmp_path: Path) -> None:
    partial = tmp_path / "vectors.npz.partial"
    partial.write_bytes(b'{"encoder": "other", "dimension": 26}\n' + bytes(32 + 4 * 26))
    words = ("embed", texts, "--encoder", "encoders_of_tests:letters")
    run = nearsure(*words, "-o", tmp_path / "vectors.npz")
    assert (run.code, run.err) == (0, "")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--encoder", "encoders_of_tests:letters", "-o", "x.npy"), "must end in"),
        (("--encoder", "sound", "-o", "x.npz"), "encoder must be"),
        (("--encoder", "encoders_of_tests:letters", "--device", "cuda", "-o", "x.npz"), "its own"),
        (("--encoder", "text", "--device", "abacus", "-o", "x.npz"), "device must be"),
        (("--encoder", "encoders_of_tests:sizes", "-o", "x.npz"), "holds texts, and"),
    ],
)
def test_mistakes_are_sentences(texts: Path, words: tuple[str, ...], sentence: str) -> None:
    run = nearsure("embed", texts, *words)
    assert run.code == 2
    assert sentence in run.err


LETTERS = "encoders_of_tests:letters"
# Nothing is fitted: these points are too easy.
PLAIN = ("--rule", "knn", "--head", "none", "--calibration", "none")


@pytest.mark.parametrize("name", ["model.safetensors", "gallery.sqlite"])
def test_texts_are_fitted_and_asked_in_one_step(texts: Path, tmp_path: Path, name: str) -> None:
    """The answers are those of two steps; code from elsewhere has to be named again."""
    model = tmp_path / name
    fitted = succeeded("fit", texts, "--encoder", LETTERS, "-o", model, "--json", *PLAIN).json
    assert (fitted["n_points"], fitted["encoder"]) == (40, f"{LETTERS} 1")
    succeeded("embed", texts, "--encoder", LETTERS, "-o", tmp_path / "v.npz")
    assert f"named: --encoder {LETTERS}" in refused("predict", texts, "--model", model)
    named = ("--model", model, "--encoder", LETTERS)
    one = succeeded("predict", texts, *named, "--json").json
    two = succeeded("predict", tmp_path / "v.npz", "--model", model, "--json").json
    assert [(row["id"], row["confidence"]) for row in one] == [
        (row["id"], row["confidence"]) for row in two
    ]
    report = succeeded("report", texts, *named, "--json", "-")
    assert report.json["about"]["n_queries"] == 40


def test_another_encoder_is_refused(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "gallery.sqlite"
    succeeded("fit", texts, "--encoder", LETTERS, "-o", model, *PLAIN)
    asked = ("predict", texts, "--model", model)
    assert "made by the encoder" in refused(*asked, "--encoder", "encoders_of_tests:others")
    assert "made by the encoder" in refused("fit", model, "--encoder", "encoders_of_tests:others")
    # A fit in place keeps it.
    succeeded("fit", model, *PLAIN)
    monkeypatch.setattr(Letters, "version", "2")
    assert f"'{LETTERS} 1'" in refused(*asked, "--encoder", LETTERS)
    assert f"'{LETTERS} 2'" in refused(*asked, "--encoder", LETTERS)


def test_what_is_encoded_without_an_encoder(texts: Path, photos: Path, tmp_path: Path) -> None:
    """The sentence says what to type."""
    for source, kind in ((texts, "text"), (photos, "image")):
        said = refused("fit", source, "-o", tmp_path / "m.safetensors")
        assert f"--encoder {kind}" in said
    vectors = tmp_path / "v.npz"
    succeeded("embed", texts, "--encoder", LETTERS, "-o", vectors)
    model = tmp_path / "model.safetensors"
    succeeded("fit", vectors, "-o", model, *PLAIN)
    said = refused("predict", texts, "--model", model)
    assert "name it, as --encoder text" in said
    assert len(succeeded("predict", texts, "--model", model, "--encoder", LETTERS).rows) == 40
    assert "holds no images or texts" in refused(
        "predict", vectors, "--model", model, "--encoder", LETTERS
    )
    # Of vectors, the encoder says what has made them.
    succeeded("fit", vectors, "-o", model, "--encoder", LETTERS, *PLAIN)
    assert f"made by the encoder '{LETTERS}'" in refused("predict", texts, "--model", model)
    assert "vectors_key must be left out" in refused(
        "fit", texts, "--encoder", LETTERS, "--vectors-key", "v", "-o", model
    )


def test_an_encoder_of_the_other_kind_is_named(texts: Path, photos: Path, tmp_path: Path) -> None:
    model = tmp_path / "gallery.sqlite"
    succeeded("fit", texts, "--encoder", LETTERS, "-o", model, *PLAIN)
    for words in (
        ("predict", photos, "--model", model),
        ("fit", photos, "-o", tmp_path / "other.sqlite"),
        ("embed", photos, "-o", tmp_path / "v.npz"),
    ):
        said = refused(*words, "--encoder", LETTERS)
        assert f"{photos} holds images, and the encoder takes texts" in said


def test_groups_are_not_each_others_neighbours(photos: Path, tmp_path: Path) -> None:
    for name in ("cat/1.png", "cat/2.png", "dog/1.png"):
        (photos / name).rename(photos / name.replace(".png", ".moved"))
    for name in (
        "cat/a/1.png",
        "cat/a/2.png",
        "cat/b/3.png",
        "dog/c/4.png",
        "dog/d/5.png",
        "dog/d/6.png",
    ):
        path = photos / name
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8 + len(name))).save(path)
    model = tmp_path / "gallery.sqlite"
    words = ("fit", photos, "--encoder", "encoders_of_tests:sizes", "-o", model)
    succeeded(*words, "--groups-from-folder", *PLAIN)
    with SqliteEngine(model, read_only=True) as engine:
        classifier = NEDClassifier.from_bytes(engine.notes["model"], engine)
        assert classifier.classes_.tolist() == ["cat", "dog"]
        groups = classifier.own_points()[2]
    assert groups is not None
    assert groups.tolist() == [0, 0, 1, 2, 3, 3]
    assert "CLASS/GROUP" not in refused(*words, "--replace", "--groups-key", "x")


@pytest.mark.parametrize("suffix", ["npz", "csv", "jsonl", "parquet"])
def test_a_column_of_groups(tmp_path: Path, suffix: str) -> None:
    columns: dict[str, Any] = {
        "label": ["x", "x", "x", "y", "y", "y"],
        "burst": ["a", "a", "b", "c", "d", "e"],
        "vector": np.array([[0, 0], [0, 1], [1, 0], [5, 5], [5, 6], [6, 5]], np.float32),
    }
    source, model = tmp_path / f"v.{suffix}", tmp_path / "model.safetensors"
    if suffix == "npz":
        np.savez(source, **columns)
    else:
        with open_records(source, suffix) as records:  # type: ignore[arg-type]
            records.write(columns)
    words = ("fit", source, "--labels-key", "label", "-o", model)
    succeeded(*words, "--groups-key", "burst", *PLAIN)
    groups = NEDClassifier.load(model).own_points()[2]
    assert groups is not None
    assert groups.tolist() == [0, 0, 1, 2, 3, 4]
    assert "groups_key" in refused(*words, "--groups-key", "absent")
    assert "folder of images" in refused(*words, "--groups-from-folder")


def test_a_column_of_groups_of_texts(texts: Path, photos: Path, tmp_path: Path) -> None:
    """Of a csv file as of lines of JSON; a row without a group is an error."""
    model, lines = tmp_path / "model.safetensors", tmp_path / "texts.jsonl"
    with texts.open(newline="") as file:
        rows = [
            {**row, "speaker": f"s{int(row['id'][1:]) // 2:02}"} for row in csv.DictReader(file)
        ]
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with texts.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    for source in (texts, lines):
        words = ("fit", source, "--encoder", LETTERS, "-o", model, *PLAIN)
        succeeded(*words, "--groups-key", "speaker")
        groups = NEDClassifier.load(model).own_points()[2]
        assert groups is not None
        assert groups.tolist() == [place // 2 for place in range(40)]
        assert "groups_key names 'absent', which line" in refused(*words, "--groups-key", "absent")
    of_photos = ("fit", photos, "--encoder", "encoders_of_tests:sizes", "-o", model)
    assert "--groups-from-folder" in refused(*of_photos, "--groups-key", "speaker")


def test_several_images_are_asked_about_at_once(photos: Path, tmp_path: Path) -> None:
    """Each is named by its path, in the order given; what cannot be decoded is left out."""
    model = tmp_path / "gallery.sqlite"
    sizes = ("--encoder", "encoders_of_tests:sizes")
    for name, side in (("cat/1.png", 8), ("cat/2.png", 9), ("dog/1.png", 60), ("dog/2.png", 64)):
        Image.new("RGB", (side, side)).save(photos / name)
    succeeded("fit", photos, *sizes, "-o", model, *PLAIN)
    one, two, folder = photos / "dog" / "1.png", photos / "cat" / "2.png", photos / "dog"
    rows = succeeded("predict", one, two, folder, "-m", model, *sizes).rows
    assert [(row["id"], row["label"]) for row in rows] == [
        (one.as_posix(), "dog"),
        (two.as_posix(), "cat"),
        (one.as_posix(), "dog"),
        ((folder / "2.png").as_posix(), "dog"),
    ]
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    run = nearsure("predict", one, broken, "-m", model, *sizes)
    assert run.code == 1
    assert len(run.rows) == 1
    assert "broken.png cannot be decoded" in run.err
    vectors = tmp_path / "v.npz"
    succeeded("embed", photos, *sizes, "-o", vectors)
    for words, sentence in (
        ((one, vectors), "must all be images"),
        ((vectors, one), "must all be images"),
        ((one, "absent.png"), "no file absent.png"),
        (("absent.png",), "no file absent.png"),
    ):
        assert sentence in refused("predict", *words, "-m", model, *sizes)


def test_several_files_of_texts_are_asked_about_at_once(texts: Path, tmp_path: Path) -> None:
    model, more = tmp_path / "gallery.sqlite", tmp_path / "more.txt"
    more.write_text("pay bill\nrain sun\n")
    succeeded("fit", texts, "--encoder", LETTERS, "-o", model, *PLAIN)
    rows = succeeded("predict", more, texts, "-m", model, "--encoder", LETTERS).rows
    assert len(rows) == 42
    assert [row["id"] for row in rows[:3]] == [f"{more}:1", f"{more}:2", f"{texts}:t0"]
    assert [row["text"] for row in rows[:2]] == ["pay bill", "rain sun"]


@pytest.mark.parametrize("command", ["evaluate", "recalibrate"])
def test_labelled_images_that_are_broken_are_listed(
    photos: Path, tmp_path: Path, command: str
) -> None:
    """The encoder may be named: models fitted on vectors do not say which made them."""
    for name in ("cat", "dog"):
        for side in range(8, 20):
            size = side if name == "cat" else 20 + side
            Image.new("RGB", (size, size)).save(photos / name / f"{side}.png")
    sizes = ("--encoder", "encoders_of_tests:sizes")
    vectors, model = tmp_path / "v.npz", tmp_path / "model.safetensors"
    succeeded("embed", photos, *sizes, "-o", vectors)
    succeeded("fit", vectors, "-o", model)
    (photos / "dog" / "1.png").write_bytes(b"no image")
    output = () if command == "evaluate" else ("-o", tmp_path / "new.safetensors")
    assert "--encoder image" in refused(command, photos, "-m", model, *output)
    run = nearsure(command, photos, "-m", model, *sizes, *output, "--json")
    assert run.code == 1, run.err
    assert "dog/1.png cannot be decoded" in run.err
    assert "1 image was left out" in run.err
    assert run.json[{"evaluate": "n_queries", "recalibrate": "n_labelled"}[command]] == 26


def test_the_time_left_is_that_of_the_encoder(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encoding takes longer than all that is done with the vectors."""
    # However quick it is here, each step is drawn.
    monkeypatch.setattr(Progress, "update", partialmethod(Progress.update, refresh=True))
    named = ("--encoder", LETTERS)
    model = tmp_path / "gallery.sqlite"
    fit = succeeded("fit", texts, *named, "-o", model, *PLAIN, on_terminal=True).err
    predict = succeeded("predict", texts, *named, "-m", model, on_terminal=True).err
    embed = succeeded("embed", texts, *named, "-o", tmp_path / "v.npz", on_terminal=True).err
    for shown, title in ((fit, "loading: "), (predict, "predicting: "), (embed, "")):
        steps = re.findall(
            rf"{title}encoding [^/]*?(\d+)/40", re.sub(r"\x1b\[\S*?[A-Za-z]", "", shown)
        )
        assert list(dict.fromkeys(map(int, steps))) == [0, 16, 32]
    assert "encoding: encoding" not in embed


def test_texts_are_shown_with_their_items(texts: Path, tmp_path: Path) -> None:
    model, suspects = tmp_path / "gallery.sqlite", tmp_path / "suspects.csv"
    succeeded("fit", texts, "--encoder", LETTERS, "-o", model, *PLAIN)
    with texts.open(newline="") as file:
        written = {row["id"]: row["text"] for row in csv.DictReader(file)}
    named = ("--model", model, "--encoder", LETTERS)
    answers = succeeded("predict", texts, *named, "--neighbors", 3, "--json").json
    assert {row["id"]: row["text"] for row in answers} == written
    neighbors = [one for row in answers for one in row["neighbors"]]
    assert {one["id"]: one["text"] for one in neighbors}.items() <= written.items()
    audit = succeeded("audit", "--model", model, "--json").json["suspects"]
    assert audit
    assert all(one["text"] == written[one["id"]] for one in audit)
    table = succeeded("audit", "--model", model, "-o", suspects).out
    assert audit[0]["text"].split()[0] in table
    with suspects.open(newline="") as file:
        assert [row["text"] for row in csv.DictReader(file)] == [one["text"] for one in audit]
    succeeded("embed", texts, "--encoder", LETTERS, "-o", tmp_path / "v.csv")
    from_file = succeeded("audit", tmp_path / "v.csv", "--json").json["suspects"]
    assert all(one["text"] == written[one["id"]] for one in from_file)
    report = succeeded("report", texts, *named, "--json", "-").json
    mistake = report["mistakes"][0]
    assert mistake["text"] == written[mistake["id"]]
    assert mistake["neighbors"][0]["text"] == written[mistake["neighbors"][0]["id"]]
    own_report = succeeded("report", "--model", model, "--json", "-").json
    own = own_report["mistakes"][0]
    assert own["text"] == written[own["id"]]
    for one in (report, own_report):
        shown = [*one["classes"], *one["confusion"]["cells"]]
        examples = [example for each in shown for example in each["examples"]]
        assert {each["text"] for each in examples}
        assert all(each["text"] == written[each["id"]] for each in examples)
