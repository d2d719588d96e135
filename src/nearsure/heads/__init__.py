"""Heads: what a class as a whole looks like, beside what a query's neighbours say."""

from nearsure.heads.class_means import ClassMeans, Moments, fit_class_means
from nearsure.heads.joint import Joint, fit_joint, join_head
from nearsure.heads.linear import LinearHead
from nearsure.heads.logistic import fit_logistic_head

__all__ = [
    "ClassMeans",
    "Joint",
    "LinearHead",
    "Moments",
    "fit_class_means",
    "fit_joint",
    "fit_logistic_head",
    "join_head",
]
