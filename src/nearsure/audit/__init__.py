"""What is wrong with a gallery, read off its leave-one-out neighbours."""

from nearsure.audit.confusable import ConfusableClasses, confusable_classes
from nearsure.audit.duplicates import NearDuplicates, near_duplicates_across_classes
from nearsure.audit.gallery_audit import GalleryAudit, audit
from nearsure.audit.small import SmallClasses, small_classes
from nearsure.audit.suspects import SuspectLabels, suspect_labels

__all__ = [
    "ConfusableClasses",
    "GalleryAudit",
    "NearDuplicates",
    "SmallClasses",
    "SuspectLabels",
    "audit",
    "confusable_classes",
    "near_duplicates_across_classes",
    "small_classes",
    "suspect_labels",
]
