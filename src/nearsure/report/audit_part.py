"""What the gallery's own points say against it, as a part of the document."""

from nearsure.audit import GalleryAudit
from nearsure.classifier import NEDClassifier
from nearsure.report.document import (
    Audit,
    ConfusablePair,
    DuplicatePair,
    SmallClass,
    Suspect,
)
from nearsure.report.plain import plain_label, plain_number
from nearsure.report.thumbnails import Pictures, Thumbnails, picture_under

# Pairs of classes and small classes that are listed.
ROWS_SHOWN = 50


def audit_of(
    classifier: NEDClassifier,
    *,
    n_suspects: int,
    thumbnails: Thumbnails | None = None,
    pictures: Pictures | None = None,
) -> Audit:
    """Audit a gallery: every point is searched, each leaving itself out.

    Parameters
    ----------
    classifier : NEDClassifier
        Fitted, with two points or more.
    n_suspects : int
        Suspects and near-duplicates that are listed at most.
    thumbnails, pictures : Thumbnails, mapping of id to picture
        For pictures of the suspects.
    """
    found = classifier.audit()
    small_pictures = thumbnails or Thumbnails()
    classes = [plain_label(label) for label in classifier.classes_]
    doubted = found.suspects.first(min(n_suspects, found.suspects.n_doubted))
    suspects = tuple(
        Suspect(
            id=plain_label(doubted.ids[i]),
            label=classes[doubted.codes[i]],
            suggested=None
            if doubted.suggested_codes[i] < 0
            else classes[doubted.suggested_codes[i]],
            p_own=float(doubted.p_own[i]),
            p_suggested=float(doubted.p_suggested[i]),
            trust=float(doubted.trust[i]),
            picture=small_pictures.of(picture_under(pictures, doubted.ids[i])),
        )
        for i in range(len(doubted))
    )
    return Audit(
        n_points=found.n_points,
        n_suspects=found.suspects.n_doubted,
        n_duplicates=len(found.duplicates),
        n_small=len(found.small),
        suspects=suspects,
        duplicates=_duplicates(found, classes, n_suspects),
        confusable=tuple(
            ConfusablePair(classes[first], classes[second], float(confusion))
            for (first, second), confusion in zip(
                found.confusable.codes[:ROWS_SHOWN],
                found.confusable.confusion[:ROWS_SHOWN],
                strict=True,
            )
        ),
        small=tuple(
            SmallClass(
                label=classes[found.small.codes[i]],
                n_members=int(found.small.n_members[i]),
                n_missed=int(found.small.n_missed[i]),
                accuracy=plain_number(float(found.small.accuracy[i])),
            )
            for i in range(min(ROWS_SHOWN, len(found.small)))
        ),
    )


def _duplicates(
    found: GalleryAudit, classes: list[str | int], n_shown: int
) -> tuple[DuplicatePair, ...]:
    pairs = found.duplicates
    return tuple(
        DuplicatePair(
            first_id=plain_label(pairs.ids[i, 0]),
            second_id=plain_label(pairs.ids[i, 1]),
            first_label=classes[pairs.codes[i, 0]],
            second_label=classes[pairs.codes[i, 1]],
            sq_distance=float(pairs.sq_distances[i]),
        )
        for i in range(min(n_shown, len(pairs)))
    )
