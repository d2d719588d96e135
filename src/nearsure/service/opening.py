"""From settings to a gallery that can be served."""

import logging
from dataclasses import dataclass

from nearsure.encoders import Encoder, open_encoder
from nearsure.engines.contract import Engine
from nearsure.engines.registry import open_engine
from nearsure.errors import ConfigError, InvalidInputError
from nearsure.service.fits import Fit, fitted_from_nothing, keep, read_fit
from nearsure.service.kept_notes import Notes, NotesInFiles, NotesInMemory, notes_in
from nearsure.service.served_gallery import SMALLEST_GALLERY, ServedGallery
from nearsure.service.settings import ServiceSettings
from nearsure.service.thresholds import ThresholdInUse, chosen_for

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
        fit = _fit(notes, own, settings.precision)
    except BaseException:
        if engine is None:
            own.close()
        raise
    return Opened(ServedGallery(own, notes, fit, settings.precision), encoder)


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


def _fit(notes: Notes, engine: Engine, precision: float | None) -> Fit | None:
    if engine.size() < SMALLEST_GALLERY:
        log.warning("The gallery holds too few items to answer from; it can be added to.")
        return None
    kept = read_fit(notes, engine, precision)
    if kept is not None:
        return kept
    log.info("There is no fit yet: making the first.")
    try:
        classifier = fitted_from_nothing(engine)
        threshold = ThresholdInUse(model=1)
        if precision is not None:
            threshold = chosen_for(classifier, precision, 1)
    except InvalidInputError as error:
        log.warning("Nothing can be fitted on the gallery as it is: %s", error)
        return None
    fit = Fit(classifier, 1, threshold)
    keep(fit, notes)
    return fit
