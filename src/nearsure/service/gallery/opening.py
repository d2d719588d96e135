"""From settings to a gallery that can be served."""

import logging
from dataclasses import dataclass, replace

from nearsure.classifier import NEDClassifier
from nearsure.encoders import Encoder, open_encoder
from nearsure.engines.contract import Engine
from nearsure.engines.registry import open_engine
from nearsure.errors import ConfigError, InvalidInputError
from nearsure.service.gallery.fits import (
    Fit,
    counted_anew,
    fitted_from_nothing,
    least_changes,
    with_changes,
)
from nearsure.service.gallery.kept_fits import KeptFit, RecordedChanges, changes_in, keep, read_kept
from nearsure.service.gallery.kept_notes import (
    THRESHOLD,
    Notes,
    NotesInFiles,
    NotesInMemory,
    notes_in,
)
from nearsure.service.gallery.served_gallery import SMALLEST_GALLERY, ServedGallery
from nearsure.service.gallery.thresholds import ThresholdInUse, chosen_for, not_chosen_yet
from nearsure.service.settings import ServiceSettings

log = logging.getLogger("nearsure.service")


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
        _check_encoder(encoder, own)
        notes = _notes(settings, own, is_given=engine is not None)
        gallery = _served(settings, own, notes, changes_in(own))
    except BaseException:
        if engine is None:
            own.close()
        raise
    return Opened(gallery, encoder)


def _check_encoder(encoder: Encoder | None, engine: Engine) -> None:
    if encoder is not None and encoder.dimension != engine.dimension:
        raise ConfigError(
            f"The encoder makes vectors of {encoder.dimension} numbers. "
            f"Those of the gallery have {engine.dimension}."
        )


def _notes(settings: ServiceSettings, engine: Engine, *, is_given: bool) -> Notes:
    if settings.model is not None:
        return NotesInFiles(settings.model)
    notes = notes_in(engine)
    if notes is not None:
        return notes
    if is_given:
        return NotesInMemory()
    raise ConfigError(
        "The fit needs a file to be kept in: this engine keeps none. Give the path of one as model."
    )


def _served(
    settings: ServiceSettings, engine: Engine, notes: Notes, changes: RecordedChanges | None
) -> ServedGallery:
    """The gallery with the fit that was kept, or else with the first, if it has points for one."""
    n_items, kept = engine.size(), read_kept(notes, changes)
    fit: Fit | None = None
    if kept is not None and n_items:
        fit = _continued(kept, engine, changes, settings.precision)
        if fit.threshold is not kept.threshold:
            notes.put({THRESHOLD: fit.threshold.to_bytes()})
    elif kept is None and n_items >= SMALLEST_GALLERY:
        fit = _first(engine, changes, settings.precision)
        if fit is not None:
            keep(fit, notes)
    else:
        log.warning("The gallery holds too few items to answer from; it can be added to.")
    gallery = ServedGallery(engine, notes, fit, settings.precision, changes)
    if fit is None and kept is not None:
        gallery.continue_from(kept)
    return gallery


def _continued(
    kept: KeptFit, engine: Engine, changes: RecordedChanges | None, precision: float | None
) -> Fit:
    """The fit that was kept, with the gallery counted as it is now."""
    classifier = counted_anew(kept.model, engine)
    if dict(engine.fingerprint()) != classifier.fingerprint_:
        log.warning("The fit was made through another engine or index; a refit is due.")
    n_unseen, last_change = least_changes(classifier, kept.model), kept.last_change
    if changes is not None and last_change is not None:
        changed = changes.since(last_change)
        with_changes(classifier, [changed])
        n_unseen = max(0, n_unseen - len(changed))
    elif changes is not None:
        last_change = changes.last()
    threshold = _threshold(classifier, kept, precision)
    return Fit(classifier, kept.number, threshold, n_unseen, last_change)


def _threshold(classifier: NEDClassifier, kept: KeptFit, precision: float | None) -> ThresholdInUse:
    """The threshold that was set, or else the one for the precision that is asked for now."""
    in_use = kept.threshold or ThresholdInUse(model=kept.number)
    if precision is not None and in_use.precision != precision:
        if in_use.is_set:
            log.warning(
                "A threshold was set, and is used instead of precision %g: %s "
                "PUT /v1/threshold sets another.",
                precision,
                in_use.sentence,
            )
        else:
            in_use = not_chosen_yet(precision, 0)
    if in_use.precision is None or in_use.model == kept.number:
        return in_use
    try:
        chosen = chosen_for(classifier, in_use.precision, kept.number)
    except InvalidInputError as error:
        log.warning("No threshold can be chosen on the gallery as it is: %s", error)
        return in_use
    return replace(chosen, is_set=in_use.is_set)


def _first(engine: Engine, changes: RecordedChanges | None, precision: float | None) -> Fit | None:
    log.info("There is no fit yet: making the first.")
    last_change = None if changes is None else changes.last()
    try:
        classifier = fitted_from_nothing(engine)
        threshold = ThresholdInUse(model=1)
        if precision is not None:
            threshold = chosen_for(classifier, precision, 1)
    except InvalidInputError as error:
        log.warning("Nothing can be fitted on the gallery as it is: %s", error)
        return None
    return Fit(classifier, 1, threshold, last_change=last_change)
