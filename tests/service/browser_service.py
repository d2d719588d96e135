"""A small gallery, served for real from a thread, for tests that open its page."""

import io
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
import uvicorn
from numpy.typing import NDArray
from PIL import Image

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.engines.sqlite import SqliteEngine
from nearsure.service import ServiceSettings, create_app
from nearsure.service.documents import report_document

HOSTILE = "<img src=x onerror='window.fooled=1'>"
CLASSES = ("cat", "dog", "owl", HOSTILE)
DIMENSION = 6
MEMBERS = 16
READ_TOKEN, WRITE_TOKEN = "read-" + 16 * "r", "write-" + 16 * "w"
# Far inside their classes, and labelled as another.
MISLABELLED = {"cat-03": "dog", "owl-07": "cat", "dog-11": "owl"}


def center_of(name: str) -> AnyArray:
    center: AnyArray = 4.0 * np.eye(len(CLASSES), DIMENSION)[CLASSES.index(name)]
    return center


def short_name(name: str) -> str:
    return "odd" if name == HOSTILE else name


def make_gallery(path: Path) -> None:
    """Four round classes with pictures and some wrong labels, fitted to expect unknowns."""
    random = np.random.default_rng(7)
    vectors = [center_of(name) + random.normal(0, 0.8, (MEMBERS, DIMENSION)) for name in CLASSES]
    ids = [f"{short_name(name)}-{place:02d}" for name in CLASSES for place in range(MEMBERS)]
    labels = np.repeat(np.array(CLASSES, dtype=object), MEMBERS)
    for own_id, wrong in MISLABELLED.items():
        place = ids.index(own_id)
        vectors[place // MEMBERS][place % MEMBERS] = center_of(str(labels[place]))
        labels[place] = wrong
    with SqliteEngine.create(path, DIMENSION) as engine:
        engine.add(np.concatenate(vectors), np.array(ids), labels.astype(str))
        engine.put_pictures({own_id: _picture(place) for place, own_id in enumerate(ids)})
        classifier = NEDClassifier(engine=engine, unknown_share=0.2).fit_engine()
        model = path.with_suffix(".model")
        classifier.save(model)
        engine.notes["model"] = model.read_bytes()


def draw_queries(n: int, seed: int, moved: float = 0.0, noise: float = 1.6) -> AnyArray:
    """Queries of the classes of `make_overlapping`, perhaps moved away from them."""
    random = np.random.default_rng(seed)
    classes = random.integers(len(CLASSES), size=n)
    centers = 4.0 * np.eye(len(CLASSES), DIMENSION)[classes]
    moved_queries: AnyArray = centers + moved + random.normal(0, noise, (n, DIMENSION))
    return moved_queries


def make_overlapping(path: Path) -> None:
    """Four classes that overlap, fitted to expect no unknowns."""
    random = np.random.default_rng(7)
    ids = [f"{short_name(name)}-{place:02d}" for name in CLASSES for place in range(60)]
    vectors = 4.0 * np.repeat(np.eye(len(CLASSES), DIMENSION), 60, axis=0)
    with SqliteEngine.create(path, DIMENSION) as engine:
        labels = np.repeat(np.array(CLASSES), 60)
        engine.add(vectors + random.normal(0, 1.6, vectors.shape), np.array(ids), labels)


def make_long_named(path: Path) -> None:
    """Two classes, one label wrong, and every name as long as may be."""
    random = np.random.default_rng(8)
    names = np.array(["W" * 200, "many words " * 18])
    classes = np.repeat([0, 1], 8)
    vectors = 4.0 * np.eye(2, DIMENSION)[classes] + random.normal(0, 0.8, (16, DIMENSION))
    labels = names[classes]
    labels[3] = names[1]
    vectors[3] = 4.0 * np.eye(2, DIMENSION)[0]
    with SqliteEngine.create(path, DIMENSION) as engine:
        engine.add(vectors, np.array([f"{'x' * 196}-{place:03d}" for place in range(16)]), labels)


# A browser that takes them for numbers sees two and two of these as one.
LARGE_IDS = [2**53 + place for place in range(16)]
LARGE_LABELS = [2**53, 2**53 + 1]


def make_large_numbered(path: Path) -> None:
    """Two classes of integer labels under integer ids, and two labels wrong."""
    random = np.random.default_rng(8)
    classes = np.repeat([0, 1], 8)
    vectors = 4.0 * np.eye(2, DIMENSION)[classes] + random.normal(0, 0.8, (16, DIMENSION))
    labels = np.array(LARGE_LABELS)[classes]
    for place, wrong in ((3, 1), (9, 0)):
        vectors[place] = 4.0 * np.eye(2, DIMENSION)[1 - wrong]
        labels[place] = LARGE_LABELS[wrong]
    with SqliteEngine.create(path, DIMENSION, ids="integer", labels="integer") as engine:
        engine.add(vectors, np.array(LARGE_IDS), labels)


def make_empty(path: Path) -> None:
    SqliteEngine.create(path, DIMENSION).close()


def _picture(place: int) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (24, 24), (place, 255 - place, 128)).save(content, "PNG")
    return content.getvalue()


class NamedClasses:
    """A text encoder: the center of the class that a text names."""

    kind: Literal["text"] = "text"
    dimension = DIMENSION

    def encode(self, inputs: Sequence[bytes] | Sequence[str]) -> NDArray[np.float32]:
        named = [next(name for name in CLASSES if name in str(text)) for text in inputs]
        return np.stack([center_of(name) for name in named]).astype(np.float32)


class DarkCats:
    """An image encoder: what is dark is a cat, all else is an owl."""

    kind: Literal["image"] = "image"
    dimension = DIMENSION

    def encode(self, inputs: Sequence[bytes] | Sequence[str]) -> NDArray[np.float32]:
        pictures = [Image.open(io.BytesIO(one)) for one in inputs if isinstance(one, bytes)]
        is_dark = [np.asarray(picture).mean() < 128 for picture in pictures]
        return np.stack([center_of("cat" if dark else "owl") for dark in is_dark]).astype(
            np.float32
        )


@dataclass(frozen=True)
class Served:
    """Where it listens, and the way around the page."""

    address: str
    token: str | None = None

    def call(self, path: str, body: object = None, method: str | None = None) -> Any:  # noqa: ANN401
        """What the API says; reports are waited for."""
        headers = {"Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, content, headers, method=method)  # noqa: S310
        while True:
            with urllib.request.urlopen(request) as answer:  # noqa: S310
                if answer.status != 202 or method == "POST":
                    return json.load(answer)
            time.sleep(0.05)

    def label_of(self, own_id: str) -> str:
        return str(self.call(f"/v1/items/{own_id}")["label"])


@contextmanager
def serving(
    gallery: Path, *, tokens: bool = False, report: bytes | None = None
) -> Iterator[Served]:
    """The real app behind a real port; guarded and for images, or open and for text.

    A report that was made before saves making one of every gallery.
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        settings = ServiceSettings(
            str(gallery),
            port=port,
            precision=0.9,
            read_tokens=(READ_TOKEN,) * tokens,
            write_tokens=(WRITE_TOKEN,) * tokens,
        )
        app = create_app(settings, encoder=DarkCats() if tokens else NamedClasses())
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        make = report_document if report is None else lambda *_, **__: report
        with patch("nearsure.service.service.report_document", make):
            thread.start()
            while thread.is_alive() and not server.started:
                time.sleep(0.02)
        assert thread.is_alive(), "the service did not start"
        try:
            yield Served(f"http://127.0.0.1:{port}", WRITE_TOKEN if tokens else None)
        finally:
            server.should_exit = True
            thread.join()
