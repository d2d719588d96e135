"""Out-of-sample probabilities of a gallery's own points, in the form that cleanlab expects.

cleanlab itself is not imported: `Datalab.find_issues` takes an array.
"""

import numpy as np

from nearsure.arrays import FloatArray
from nearsure.classifier import NEDClassifier
from nearsure.classifier.results import check_dense_fits
from nearsure.posterior import to_dense


def own_probabilities(classifier: NEDClassifier) -> FloatArray:
    """What each point of the gallery would be taken for if it were not in it.

    Parameters
    ----------
    classifier : NEDClassifier
        Fitted on the gallery.

    Returns
    -------
    array of shape (n_support, n_classes)
        For ``Datalab.find_issues(pred_probs=...)``: rows in the order of ``support_ids_``, which is
        that of the fit; one column for each class that has points, in the order of sorted labels,
        as cleanlab numbers them. Rows sum to 1: a point of a gallery is of one of its classes,
        whatever share of unknown queries is expected.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> Z, y = load_digits(return_X_y=True)
    >>> shares = own_probabilities(NEDClassifier(head=None).fit(Z[:300], y[:300]))
    >>> shares.shape, float((shares.argmax(axis=1) == y[:300]).mean().round(2))
    ((300, 10), 0.99)
    """
    ids = classifier.support_ids_
    check_dense_fits(len(ids), len(classifier.classes_))
    own = classifier.predict_own(ids)
    totals = np.ones(len(ids)) if own.p_known is None else own.p_known
    shares = to_dense(own.posterior, totals, classifier.class_counts_ > 0)
    # Classes whose points were all removed stay among classes_; cleanlab has no place for them.
    there = np.flatnonzero(classifier.class_counts_ > 0)
    shares = shares[:, there[np.argsort(classifier.classes_[there], kind="stable")]]
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))
