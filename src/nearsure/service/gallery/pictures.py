"""Small pictures of items, where the gallery holds some."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias, cast

from starlette.responses import Response

from nearsure.arrays import AnyArray
from nearsure.classifier import NEDClassifier
from nearsure.engines.contract import Engine
from nearsure.report.document import Label
from nearsure.service.gallery.served_gallery import ServedGallery
from nearsure.service.problems import ProblemError

Find: TypeAlias = Callable[[Label], bytes | None]


class PicturesInEngine(Mapping[Label, bytes]):
    """Pictures by id, read when they are asked for; it does not list them.

    Parameters
    ----------
    find : callable
        From an id of the engine to its picture.
    kind : type
        Of the engine's ids. A report also asks for the text of an integer, which is no id there.
    """

    def __init__(self, find: Find, kind: type[Label]) -> None:
        self._find, self._kind = find, kind

    def __getitem__(self, own: Label) -> bytes:
        picture = self._find(own) if isinstance(own, self._kind) else None
        if picture is None:
            raise KeyError(own)
        return picture

    def __iter__(self) -> Iterator[Label]:
        return iter(())

    def __len__(self) -> int:
        return 0


def pictures_of(classifier: NEDClassifier) -> PicturesInEngine | None:
    """The pictures of a classifier's gallery; None if its engine holds none."""
    engine = classifier.engine_
    find = None if engine is None else _finder(engine)
    if engine is None or find is None:
        return None
    return PicturesInEngine(find, str if engine.capabilities.ids == "text" else int)


def picture_answer(gallery: ServedGallery, ids: AnyArray) -> Response:
    """The picture of one item; 404 if there is none."""
    gallery.stored(ids)
    find = _finder(gallery.engine)
    picture = None if find is None else find(ids.tolist()[0])
    kind = None if picture is None else media_type(picture)
    if kind is None:
        raise ProblemError(404, "no_picture", "The item has no picture.")
    return Response(picture, media_type=kind)


def media_type(picture: bytes) -> str | None:
    r"""What kind of image it is, by its first bytes; None for what is none of three kinds.

    Examples
    --------
    >>> media_type(b"\x89PNG\r\n\x1a\n...")
    'image/png'
    """
    if picture.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if picture.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if picture[:4] == b"RIFF" and picture[8:12] == b"WEBP":
        return "image/webp"
    return None


def _finder(engine: Engine) -> Find | None:
    return cast("Find | None", getattr(engine, "picture", None))
