"""What is alive while the service runs, and how it is opened."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Thread
from time import monotonic
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from fastapi import Request

from nearsure.arrays import AnyArray
from nearsure.encoders import (
    BATCH,
    Encoder,
    EncoderKind,
    check_encoder,
    find_stored_encoder,
    open_encoder,
)
from nearsure.engines.contract import Engine
from nearsure.engines.registry import open_engine
from nearsure.errors import (
    BrokenImageError,
    ConfigError,
    EngineError,
    InvalidInputError,
    NearsureError,
)
from nearsure.model_file import read_model_bytes
from nearsure.report.thumbnails import Thumbnails
from nearsure.service.answers import Answers, ThresholdInUse, choose_again, make_pending_threshold
from nearsure.service.batching import MicroBatcher, WorkThreads
from nearsure.service.compare import ServedPairs
from nearsure.service.documents import KeptPlane, LiveDocument, audit_document, report_document
from nearsure.service.errors import Overloaded, ProblemError
from nearsure.service.gallery import SMALLEST_GALLERY, Refits, ServedGallery
from nearsure.service.items import parse_vectors
from nearsure.service.settings import ServiceSettings
from nearsure.service.store import (
    MODEL,
    THRESHOLD,
    FileStore,
    Fit,
    KeptFit,
    Notes,
    RecordedChanges,
    count_changes,
    count_least_changes,
    load_counted,
    read_kept,
    watch_changes,
)
from nearsure.service.telemetry import Measurements
from nearsure.service.watch import PromiseWatch
from nearsure.service.window import Look, QueryWindow

log = logging.getLogger("nearsure.service")
# Seconds that a stop waits for what is under way; a write is always waited for.
LAST_WAIT = 5.0
READERS = 4
# Images and texts: each takes an encoder longer than a search takes.
WAITING_ENCODINGS = 64
# Images that are to be made small, for a person who labels queries; others are shown without.
WAITING_PICTURES = 16
# However many probes of readiness come, the engine is asked once in this time.
FRESH_SECONDS = 1.0
# Seconds that a probe of readiness waits for the engine.
PROBE_SECONDS = 2.0

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Opened:
    """A gallery, and what turns images or text into its vectors, if anything does."""

    gallery: ServedGallery
    encoder: Encoder | None


def open_gallery(
    settings: ServiceSettings, engine: Engine | None = None, encoder: Encoder | None = None
) -> Opened:
    """Open the engine, and read the fit that was kept or make the first.

    Parameters
    ----------
    settings : ServiceSettings
        Where the gallery is.
    engine, encoder : optional
        Used instead of those that the settings name.
    """
    if encoder is None and settings.encoder is not None:
        encoder = open_encoder(settings.encoder)
    own = open_engine(settings.gallery, **settings.engine_options) if engine is None else engine
    try:
        notes = _find_notes(settings, own, is_given=engine is not None)
        made_by = _stored_encoder(notes)
        if encoder is None and made_by is not None:
            encoder = _open_stored(made_by, own)
        elif encoder is not None:
            # One that was given as an object has no name to be known by.
            named = settings.encoder
            check_encoder(made_by if named else None, named or "", encoder, own.dimension)
        gallery = _open_served(own, notes, settings.precision)
    except BaseException:
        if engine is None:
            own.close()
        raise
    return Opened(gallery, encoder)


def _stored_encoder(notes: Notes) -> str | None:
    """Name and version of the encoder that made the vectors, if the fit that was kept says so."""
    model = notes.get(MODEL)
    return None if model is None else read_model_bytes(model)[0].get("encoder")


def _open_stored(made_by: str, engine: Engine) -> Encoder | None:
    """The encoder of the gallery; None if it is not installed, as vectors can still be sent."""
    try:
        name = find_stored_encoder(made_by)
        encoder = open_encoder(name)
        check_encoder(made_by, name, encoder, engine.dimension)
    except NearsureError as error:
        log.warning("Images and texts are not taken, only vectors: %s", error)
        return None
    return encoder


def _find_notes(settings: ServiceSettings, engine: Engine, *, is_given: bool) -> Notes:
    if settings.model is not None:
        return FileStore(settings.model)
    notes: Notes | None = getattr(engine, "notes", None)
    if notes is None and is_given:
        notes = {}
    if notes is None:
        raise ConfigError(
            "The fit needs a file to be kept in: this engine keeps none. Give the path of one as "
            "model."
        )
    return notes


def _open_served(engine: Engine, notes: Notes, precision: float | None) -> ServedGallery:
    """The gallery with the fit that was kept, or else with the first, if it has points for one."""
    changes = watch_changes(engine)
    n_items, kept = engine.size(), read_kept(notes, changes)
    threshold, fit = _wanted_threshold(kept, precision), None
    if kept is not None and n_items:
        fit = _continue_fit(kept, threshold, engine, changes)
        if fit.threshold is not kept.threshold:
            notes.update({THRESHOLD: fit.threshold.to_bytes()})
    gallery = ServedGallery(engine, notes, changes, threshold, fit=fit, kept=kept)
    if kept is None and n_items >= SMALLEST_GALLERY:
        log.info("There is no fit yet: making the first.")
        try:
            gallery.refit()
        except InvalidInputError as error:
            log.warning("Nothing can be fitted on the gallery as it is: %s", error)
    elif fit is None:
        log.warning("The gallery holds too few items to answer from; it can be added to.")
    return gallery


def _wanted_threshold(kept: KeptFit | None, precision: float | None) -> ThresholdInUse:
    """The threshold that was set, or else the one for the precision that is asked for now."""
    in_use = (
        ThresholdInUse() if kept is None else kept.threshold or ThresholdInUse(model=kept.number)
    )
    if precision is not None and in_use.precision != precision:
        if not in_use.is_set:
            return make_pending_threshold(precision)
        log.warning(
            "A threshold was set, and is used instead of precision %g: %s "
            "PUT /v1/threshold sets another.",
            precision,
            in_use.sentence,
        )
    return in_use


def _continue_fit(
    kept: KeptFit, threshold: ThresholdInUse, engine: Engine, changes: RecordedChanges | None
) -> Fit:
    """The fit that was kept, with the gallery counted as it is now."""
    classifier = load_counted(kept.model, engine)
    recall, now = classifier.recall_, engine.fingerprint()
    if dict(now if recall is None else recall.mark(now)) != classifier.fingerprint_:
        log.warning("The fit was made through another engine or index; a refit is due.")
    n_unseen, last_change = count_least_changes(classifier, kept.model), kept.last_change
    if changes is not None and last_change is not None:
        changed = changes.since(last_change)
        count_changes(classifier, [changed])
        n_unseen = max(0, n_unseen - len(changed))
    elif changes is not None:
        last_change = changes.last()
    if threshold.precision is not None and threshold.model != kept.number:
        try:
            threshold = choose_again(threshold, classifier, kept.number)
        except InvalidInputError as error:
            log.warning("No threshold can be chosen on the gallery as it is: %s", error)
    return Fit(classifier, kept.number, threshold, n_unseen, last_change)


@runtime_checkable
class CheckedEngine(Protocol):
    """An engine with a check of its own whether it can answer."""

    def check(self) -> None:
        """An error if it is not."""


class RunningService:
    """The gallery with its threads: one answers queries, one writes, some read.

    Slow work delays only work of its kind: thresholds, which read the whole gallery, have a thread,
    the report, the audit, refits and the watch over the promise have one each, and so have figures
    and probes of readiness, which matter most when all is slow.

    Parameters
    ----------
    settings : ServiceSettings
        Its limits.
    opened : Opened
        The gallery and its encoder.
    measurements : Measurements
        Where answers are counted.
    """

    def __init__(
        self, settings: ServiceSettings, opened: Opened, measurements: Measurements
    ) -> None:
        self.settings = settings
        self.gallery, self.encoder = opened.gallery, opened.encoder
        patience = settings.patience
        self.reads = WorkThreads(READERS, "reads", patience=patience)
        self.surveys = WorkThreads(1, "surveys", patience=patience)
        self.figures = WorkThreads(1, "figures", patience=patience)
        # Readiness waits for nobody else.
        self._probes = WorkThreads(1, "probes")
        self._encoding = WorkThreads(
            1, "encodes", patience=patience, largest_queue=WAITING_ENCODINGS
        )
        self._pictures = WorkThreads(1, "pictures", largest_queue=WAITING_PICTURES)
        self._writer, self._background = WorkThreads(1, "writes"), WorkThreads(4, "background")
        self.watch = PromiseWatch(self.gallery, self._background, measurements)
        self.refits = Refits(self.gallery, self._background, self.watch.start_if_due)
        self.plane, confirmed = KeptPlane(), self.gallery.confirmed
        make_report = partial(report_document, plane=self.plane, confirmed=confirmed)
        self.report = LiveDocument(self.gallery, make_report, self._background)
        make_audit = partial(audit_document, confirmed=confirmed)
        self.audit = LiveDocument(self.gallery, make_audit, self._background)
        self.pairs = ServedPairs(self.gallery)
        self.measurements = measurements
        self.batcher: MicroBatcher[tuple[Answers, int]] = MicroBatcher(
            self.predict,
            largest_queue=settings.largest_queue,
            patience=patience,
            on_batch=measurements.batches.observe,
        )
        measurements.queue.set_function(lambda: self.batcher.queue_length)
        measurements.size.set_function(self._size)
        measurements.model.set_function(lambda: self.gallery.version[0])
        measurements.window.set_function(lambda: len(self.watch.window))
        measurements.set_promise(self._promise_state)
        self._probe: asyncio.Future[str | None] | None = None
        self._probed_at, self._was_unavailable = 0.0, False

    def predict(self, vectors: AnyArray) -> list[tuple[Answers, int]]:
        """Answers to queries, shape (n, dimension), each with its row."""
        answers = self.gallery.predict(vectors)
        self.count(answers[0][0])
        self.watch.see(vectors, answers[0][0])
        return answers

    def count(self, answers: Answers) -> None:
        """Count answers by confidence and outcome."""
        prediction = answers.prediction
        accepted = [answers.accepted(row) for row in range(len(prediction.labels))]
        n_unknown = (
            0 if prediction.verdicts is None else int((prediction.verdicts == "unknown").sum())
        )
        self.measurements.count_answers(
            prediction.confidence, None if None in accepted else np.array(accepted), n_unknown
        )

    def vectors(self, rows: list[list[float]]) -> AnyArray:
        """Numbers of a request as vectors of this gallery."""
        engine = self.gallery.engine
        metric = self.gallery.fit.classifier.metric if self.gallery.is_fitted else engine.metric
        return parse_vectors(rows, engine.dimension, metric)

    async def write(self, work: Callable[[], Result]) -> Result:
        """Do something that changes the gallery, one at a time, in the order of requests.

        Raises
        ------
        Overloaded
            If it has not begun within `patience`. What has begun is waited for: a 503 means that
            nothing was changed.
        """
        begun = self._writer.submit(work)
        outcome = asyncio.wrap_future(begun)
        await asyncio.wait([outcome], timeout=self.settings.patience)
        if not outcome.done() and begun.cancel():
            raise Overloaded(
                f"The change has waited for {self.settings.patience:g} s behind others, and was "
                "not made. Send it again shortly."
            )
        return await outcome

    async def encode(
        self, kind: EncoderKind, contents: Sequence[bytes] | Sequence[str]
    ) -> AnyArray:
        """The vectors of images or texts, shape (n, dimension)."""
        encoder = self.encoder
        if encoder is None or encoder.kind != kind:
            raise ProblemError(
                501,
                f"no_{kind}_encoder",
                f"No {kind} encoder is configured: start the service with one, or send a vector.",
            )
        # Others may be encoded between two portions of many.
        portions = [
            await self._encoding.run(
                partial(_encode, encoder, contents[start : start + BATCH], start)
            )
            for start in range(0, len(contents), BATCH)
        ]
        return np.concatenate(portions)

    def keep_picture(self, vector: AnyArray, image: bytes) -> None:
        """Keep a small picture of an image that was asked about, beside the answer."""
        with suppress(Overloaded, RuntimeError):
            self._pictures.submit(partial(_describe_image, self.watch.window, vector, image))

    async def why_unavailable(self) -> str | None:
        """Why the gallery cannot answer now; None if it can."""
        probe = self._probe
        if probe is None or (probe.done() and monotonic() >= self._probed_at + FRESH_SECONDS):
            probe = asyncio.wrap_future(self._probes.submit(self._try_engine))
            self._probe = probe
        done, _ = await asyncio.wait([probe], timeout=PROBE_SECONDS)
        return probe.result() if done else "The gallery does not answer."

    async def close(self) -> None:
        """Answer what waits, write what is to be kept, close the engine."""
        await self.batcher.close()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._end)

    def _try_engine(self) -> str | None:
        try:
            check_engine(self.gallery.engine)
            reason = None
            if self._was_unavailable:
                log.info("The service is ready again.")
        except Exception as error:  # noqa: BLE001 - whatever it is, the engine does not answer
            # The error may name files and hosts, which clients are not shown.
            reason = "The gallery cannot be read or reached. The log of the service says why."
            if not self._was_unavailable:
                log.warning("The service is not ready: %s", error)
        self._was_unavailable, self._probed_at = reason is not None, monotonic()
        return reason

    def _size(self) -> float:
        """For the figures, which are needed most when the engine fails: NaN then."""
        try:
            return self.gallery.engine.size()
        except EngineError:
            return float("nan")

    def _promise_state(self) -> str | None:
        return self.gallery.fit.promise_state if self.gallery.is_fitted else None

    def _end(self) -> None:
        self._writer.close()
        self._writer.join()
        deadline = monotonic() + LAST_WAIT
        readers = (self.reads, self.surveys, self.figures, self._probes, self._encoding)
        for threads in (*readers, self._pictures, self._background):
            threads.close(cancel=True)
        have_ended = [threads.join(max(0.0, deadline - monotonic())) for threads in readers]
        self.refits.wait(max(0.0, deadline - monotonic()))
        # An engine that hangs while it is read may hang when it is closed.
        closing = Thread(target=self.gallery.close, name="nearsure-closes", daemon=True)
        closing.start()
        closing.join(None if all(have_ended) else LAST_WAIT)
        if not all(have_ended):
            log.warning("The gallery was still being read when the service stopped.")


def get_service(request: Request) -> RunningService:
    """The service that a request is for."""
    service: RunningService | None = getattr(request.app.state, "service", None)
    if service is None:
        raise Overloaded("The service is starting. Try again shortly.")
    return service


def check_engine(engine: Engine) -> None:
    """An error if an engine does not answer a short question."""
    if isinstance(engine, CheckedEngine):
        engine.check()
        return
    # An engine without this point has answered, too.
    with suppress(InvalidInputError):
        engine.fetch(np.array(["-"] if engine.capabilities.ids == "text" else [0]))


def _describe_image(window: QueryWindow, vector: AnyArray, image: bytes) -> None:
    window.describe(vector, Look(picture=Thumbnails().of(image)))


def _encode(encoder: Encoder, contents: Sequence[bytes] | Sequence[str], first: int) -> AnyArray:
    try:
        return np.array(encoder.encode(contents), np.float32)
    except BrokenImageError as error:
        # It counts from the first of this portion.
        words = str(error).split(" ", 2)
        if words[0] == "Image" and words[1].isdigit():
            words[1] = str(int(words[1]) + first)
        raise BrokenImageError(" ".join(words)) from error
