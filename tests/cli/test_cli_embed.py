"""Images and texts become files that the other commands take."""

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from cli_runs import nearsure
from numpy.typing import NDArray
from PIL import Image

from nearsure.embedding_files import open_embeddings
from nearsure.errors import BrokenImageError


class Letters:
    """How often each letter occurs."""

    kind = "text"
    dimension = 26

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
    monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.csv"
    rows = [f"t{i},{'pay bill' if i % 2 else 'rain sun'} {'x' * i},{i % 2}" for i in range(40)]
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
        (np.zeros((1, 26)), "shape (32, 26)"),
        (np.zeros((32, 3)), "shape (32, 26)"),
        (np.full((32, 26), np.nan), "finite numbers"),
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


def test_a_broken_image_is_named_and_nothing_is_written(photos: Path, tmp_path: Path) -> None:
    (photos / "cat" / "2.png").write_bytes(b"no image")
    output = tmp_path / "vectors.jsonl"
    words = ("embed", photos, "--encoder", "encoders_of_tests:sizes", "-o", output)
    run = nearsure(*words)
    assert run.code == 2
    assert "cat/2.png cannot be decoded: it is no PNG" in run.err
    assert not list(tmp_path.glob("*vectors*"))
    run = nearsure(*words, "--skip-broken-images")
    assert run.code == 0
    assert "left out 1 of 3 images" in run.err
    with open_embeddings(output) as stream:
        assert stream.read_all().ids.tolist() == ["cat/1.png", "dog/1.png"]  # type: ignore[union-attr]


def test_only_broken_images_are_an_error(photos: Path, tmp_path: Path) -> None:
    for path in photos.rglob("*.png"):
        path.write_bytes(b"no image")
    words = ("embed", photos, "--encoder", "encoders_of_tests:sizes", "--skip-broken-images")
    run = nearsure(*words, "-o", tmp_path / "vectors.npz")
    assert run.code == 2
    assert "None of the 3 images" in run.err
    assert not (tmp_path / "vectors.npz").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--encoder", "encoders_of_tests:letters", "-o", "x.npy"), "must end in"),
        (("--encoder", "sound", "-o", "x.npz"), "encoder must be"),
        (("--encoder", "encoders_of_tests:sizes", "-o", "x.npz"), "must be a folder"),
    ],
)
def test_mistakes_are_sentences(texts: Path, words: tuple[str, ...], sentence: str) -> None:
    run = nearsure("embed", texts, *words)
    assert run.code == 2
    assert sentence in run.err
