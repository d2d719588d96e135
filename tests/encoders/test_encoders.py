"""Images and sentences become vectors; what is none is refused."""

import io
import sys
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from nearsure.encoders import Encoder, open_encoder
from nearsure.errors import BrokenImageError, ConfigError, InvalidInputError, MissingExtraError


def drawn(colour: tuple[int, int, int]) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (90, 60), colour).save(file, "PNG")
    return file.getvalue()


class Lengths:
    kind = "text"
    dimension = 1

    def encode(self, inputs: list[str]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return np.array([[len(text)] for text in inputs], np.float32)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("own_encoder_of_tests")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_images() -> None:
    encoder = open_encoder("image")
    assert isinstance(encoder, Encoder)
    red, dark_red, blue = encoder.encode([drawn((200, 0, 0)), drawn((190, 0, 0)), drawn((0, 0, 9))])
    assert red.shape == (encoder.dimension,)
    assert red @ red == pytest.approx(1, abs=1e-5)
    assert red @ dark_red > red @ blue
    assert encoder.encode([]).shape == (0, encoder.dimension)
    with pytest.raises(BrokenImageError, match="Image 2 cannot be decoded"):
        encoder.encode([drawn((0, 0, 0)), b"no image"])


def test_texts() -> None:
    encoder = open_encoder("text")
    assert isinstance(encoder, Encoder)
    pay, settle, rain = encoder.encode(["pay my bill", "settle an invoice", "will it rain"])
    assert pay.shape == (encoder.dimension,)
    assert pay @ pay == pytest.approx(1, abs=1e-5)
    assert pay @ settle > pay @ rain
    assert encoder.encode([]).shape == (0, encoder.dimension)
    with pytest.raises(InvalidInputError, match="must be a string"):
        encoder.encode([b"bytes"])


def test_one_of_your_own(own: ModuleType) -> None:
    own.Lengths, own.ready = Lengths, Lengths()  # type: ignore[attr-defined]
    for name in ("Lengths", "ready"):
        encoder = open_encoder(f"own_encoder_of_tests:{name}")
        np.testing.assert_array_equal(encoder.encode(["abc"]), [[3]])


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nothing", "must be 'image', 'text' or 'module:attribute'"),
        (":x", "must be 'image', 'text' or 'module:attribute'"),
        ("no_such_module_here:x", "cannot be imported"),
        ("own_encoder_of_tests:absent", "has no absent"),
        ("own_encoder_of_tests:number", "must have kind"),
    ],
)
def test_what_is_no_encoder(own: ModuleType, name: str, sentence: str) -> None:
    own.number = lambda: 7  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=sentence):
        open_encoder(name)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    monkeypatch.delitem(sys.modules, "nearsure.encoders.text", raising=False)
    with pytest.raises(MissingExtraError, match=r"nearsure\[text\]"):
        open_encoder("text")
