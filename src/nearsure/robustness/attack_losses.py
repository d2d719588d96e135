"""What an attack on an embedding raises: one number for each image, from its embedding alone.

Each loss is written as log-odds or a distance. A loss and any rising function of it have gradients
of the same sign, which is all that the attacks take; but a cross-entropy is flat where the model
is sure, and in float32 its gradient is then zero, which looks like robustness and is none.

Losses may be made in inference mode, where galleries mostly are; hence the decorators.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from nearsure.errors import InvalidInputError

EmbeddingLoss = Callable[[Tensor], Tensor]


@torch.inference_mode(mode=False)
def against_proxies(proxies: Tensor, codes: Tensor, *, temperature: float) -> EmbeddingLoss:
    """The normalized softmax loss against one proxy a class, as log-odds of the wrong classes.

    Its sign of the gradient is that of the cross-entropy of cosines / temperature.

    Parameters
    ----------
    proxies : tensor of shape (n_classes, d)
        One vector for each of two classes or more: learnt proxies, or class means of the gallery
        for unseen classes.
    codes : tensor of shape (n,)
        True classes of the images.
    temperature : float
        Of the softmax.
    """
    codes = _constant(codes)
    directions = functional.normalize(_constant(proxies), dim=1)

    def loss(embeddings: Tensor) -> Tensor:
        _check_count(embeddings, codes)
        logits = functional.normalize(embeddings, dim=1) @ directions.T / temperature
        own = logits.gather(1, codes[:, None])[:, 0]
        others = logits.scatter(1, codes[:, None], -torch.inf)
        return others.logsumexp(dim=1) - own

    return loss


@torch.inference_mode(mode=False)
def distance_to_anchors(anchors: Tensor) -> EmbeddingLoss:
    """Squared distance on the unit sphere to an anchor of each image's own class.

    Parameters
    ----------
    anchors : tensor of shape (n, d)
        A vector for each image: the mean of its class, or its nearest neighbour there. If it is the
        embedding of the image itself, the gradient is zero until something moves it.
    """
    directions = functional.normalize(_constant(anchors), dim=1)

    def loss(embeddings: Tensor) -> Tensor:
        if embeddings.shape != directions.shape:
            raise InvalidInputError(
                f"There must be one anchor for each embedding. Got shapes {tuple(anchors.shape)} "
                f"and {tuple(embeddings.shape)} instead."
            )
        return (functional.normalize(embeddings, dim=1) - directions).square().sum(dim=1)

    return loss


@torch.inference_mode(mode=False)
def confidence_in_a_wrong_class(
    gallery: Tensor, gallery_codes: Tensor, codes: Tensor, *, temperature: float
) -> EmbeddingLoss:
    """NED's log-odds of the most likely wrong class, through the soft weights of the gallery.

    The sum runs over the whole gallery, not over the k nearest, so that a class that is not yet
    among them can be approached; beyond them the weights are next to nothing.

    Parameters
    ----------
    gallery : tensor of shape (m, d)
        Unit vectors of the gallery, of two classes or more.
    gallery_codes : tensor of shape (m,)
        Their classes.
    codes : tensor of shape (n,)
        True classes of the images.
    temperature : float
        T of NED, in squared distances.
    """
    n_classes = int(gallery_codes.max()) + 1
    codes, gallery, gallery_codes = map(_constant, (codes, gallery, gallery_codes))
    members = functional.one_hot(gallery_codes, n_classes).to(torch.float64)
    absent = members.sum(dim=0) == 0

    def loss(embeddings: Tensor) -> Tensor:
        _check_count(embeddings, codes)
        # |z - z_i|^2 = 2 - 2 z.z_i on the sphere; the 2 is common to all and cancels.
        similar = functional.normalize(embeddings, dim=1) @ gallery.T
        exponents = 2 * similar.to(torch.float64) / temperature
        # Each class is scaled by its nearest member, as exp of a far one alone would be zero.
        nearest = torch.full((len(codes), n_classes), -torch.inf, dtype=torch.float64)
        places = gallery_codes.expand_as(exponents)
        nearest.scatter_reduce_(1, places, exponents.detach(), "amax")
        masses = (exponents - nearest.gather(1, places)).exp() @ members
        log_masses = masses.masked_fill(absent, 1.0).log() + nearest
        wrong = log_masses.detach().scatter(1, codes[:, None], -torch.inf).argmax(dim=1)[:, None]
        target = log_masses.gather(1, wrong)[:, 0]
        # Without it, as the total less a target that dominates would be rounded to zero.
        return target - log_masses.scatter(1, wrong, -torch.inf).logsumexp(dim=1)

    return loss


def _constant(tensor: Tensor) -> Tensor:
    """A copy that autograd takes for a constant, be it a parameter or made in inference mode."""
    return tensor.detach().clone()


def _check_count(embeddings: Tensor, codes: Tensor) -> None:
    # Torch would take one code for many embeddings.
    if len(embeddings) != len(codes):
        raise InvalidInputError(
            f"There must be one class code for each embedding. Got {len(codes)} codes and "
            f"{len(embeddings)} embeddings instead."
        )
