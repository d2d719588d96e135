"""Live report and audit, made in the background; pictures of items."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import asdict, dataclass
from threading import Lock
from time import monotonic
from typing import TypeAlias

import numpy as np
from starlette.responses import Response

from nearsure.arrays import AnyArray
from nearsure.classifier import NEDClassifier
from nearsure.errors import EngineError, NearsureError
from nearsure.report import audit_of, gallery_report, report_json
from nearsure.report.document import Label
from nearsure.report.map import Plane, plane_of
from nearsure.report.sections import Confirmed
from nearsure.service.batching import WorkThreads
from nearsure.service.errors import Overloaded, ProblemError, engine_unavailable
from nearsure.service.gallery import ServedGallery

log = logging.getLogger("nearsure.service")
# A gallery that changes all the time would never have a report: one that was overtaken while it was
# made is shown for so long, or as long as it took to make.
SHOWN_SECONDS = 2.0
NO_VERSION = -1, -1
SUSPECTS = 50
# Fewer than in a report file, as this one is made again after every change.
RESAMPLES = 300

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


def open_pictures(classifier: NEDClassifier) -> PicturesInEngine | None:
    """The pictures of a classifier's gallery; None if its engine holds none."""
    engine = classifier.engine_
    find: Find | None = getattr(engine, "picture", None)
    if engine is None or find is None:
        return None
    return PicturesInEngine(find, str if engine.capabilities.ids == "text" else int)


def answer_picture(gallery: ServedGallery, ids: AnyArray) -> Response:
    """The picture of one item; 404 if there is none."""
    gallery.stored(ids)
    find: Find | None = getattr(gallery.engine, "picture", None)
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


@dataclass(frozen=True)
class _Made:
    """What was made of a version of the gallery, or why nothing was."""

    version: tuple[int, int]
    document: bytes | None
    failure: ProblemError | None
    shown_until: float


class LiveDocument:
    """A document about a gallery, kept until it changes.

    Parameters
    ----------
    gallery : ServedGallery
        What it is about.
    make : callable
        From a classifier to the document's bytes.
    threads : WorkThreads
        Where it is made.
    """

    def __init__(
        self, gallery: ServedGallery, make: Callable[[NEDClassifier], bytes], threads: WorkThreads
    ) -> None:
        self._gallery, self._make, self._threads = gallery, make, threads
        self._lock = Lock()
        self._last: Future[_Made] | None = None

    def now(self) -> bytes | None:
        """The document of now; None while it is being made.

        Raises
        ------
        ProblemError
            409 if nothing is fitted yet, or nothing can be said about the gallery as it is; 503 if
            its engine has just failed.
        """
        n_writes = self._gallery.version[1]
        version = self._gallery.fit.number, n_writes
        with self._lock:
            if self._last is not None and not self._last.done():
                return None
            made = None if self._last is None else self._last.result()
            if made is None or (made.version != version and monotonic() >= made.shown_until):
                self._last = self._threads.submit(self._run)
                return None
        if made.failure is not None:
            # Without the traces of earlier raises.
            raise made.failure.with_traceback(None)
        return made.document

    def wait(self, timeout: float) -> None:
        """Wait for what is being made."""
        if self._last is not None:
            wait([self._last], timeout)

    def _run(self) -> _Made:
        version, start = self._gallery.version, monotonic()
        document: bytes | None = None
        failure: ProblemError | None = None
        try:
            document = self._gallery.read_whole(lambda classifier, _: self._make(classifier))
        except EngineError as error:
            log.warning("A report failed: %s", error)
            # It passes without a change of the gallery, and so belongs to no version of it.
            version, failure = NO_VERSION, engine_unavailable()
        except Overloaded as error:
            version, failure = NO_VERSION, error
        except (NearsureError, ProblemError) as error:
            failure = ProblemError(409, "no_document", str(error))
        except Exception:
            reason = "It failed for a reason that the log of the service gives."
            failure = ProblemError(409, "no_document", reason)
            log.exception("A report failed.")
        end = monotonic()
        overtaken = version != self._gallery.version
        shown_until = end + max(SHOWN_SECONDS, end - start) if overtaken else end
        return _Made(version, document, failure, shown_until)


class KeptPlane:
    """The plane of the map, chosen once for each fit, so that points stay where they are."""

    def __init__(self) -> None:
        self._chosen: tuple[AnyArray, Plane] | None = None

    def of(self, classifier: NEDClassifier) -> Plane:
        """The plane of a classifier's gallery."""
        fitted, chosen = classifier.fit_indices_, self._chosen
        if chosen is None or not np.array_equal(chosen[0], fitted):
            chosen = fitted, plane_of(classifier)
            self._chosen = chosen
        return chosen[1]


def report_document(
    classifier: NEDClassifier, plane: KeptPlane | None = None, confirmed: Confirmed | None = None
) -> bytes:
    """The report on a gallery by its own points."""
    report = gallery_report(
        classifier,
        title="The gallery",
        pictures=open_pictures(classifier),
        n_resamples=RESAMPLES,
        plane=None if plane is None else plane.of(classifier),
        confirmed=confirmed,
    )
    return report_json(report).encode()


def audit_document(classifier: NEDClassifier, confirmed: Confirmed | None = None) -> bytes:
    """The part of it that is about labels, duplicates and classes."""
    audit = audit_of(
        classifier,
        n_suspects=SUSPECTS,
        pictures=open_pictures(classifier),
        confirmed=confirmed,
    )
    return json.dumps(asdict(audit)).encode()
