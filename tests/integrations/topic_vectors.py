"""Texts of twenty topics as vectors: "topic-03 anything" lies near the third, in every run."""

import hashlib

import numpy as np

from nearsure.arrays import AnyArray

TOPICS = tuple(f"topic-{number:02d}" for number in range(20))
# A topic that galleries know after it was added, and one that they never know.
LATER, NEVER = "topic-20", "topic-21"
DIMENSION, NOISE = 12, 0.6
CENTRES = np.random.default_rng(77).normal(size=(len(TOPICS) + 2, DIMENSION))
# So that texts sort as they stand here: draws in the fit go by the order of ids.
N_TEXTS = 9


def embed(text: str) -> list[float]:
    """The vector of one text, whose first word names the topic."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
    noise = np.random.default_rng(seed).normal(size=DIMENSION)
    topic = int(text.split(maxsplit=1)[0].removeprefix("topic-"))
    vector: list[float] = (CENTRES[topic] + NOISE * noise).tolist()
    return vector


def embed_all(texts: list[str]) -> AnyArray:
    return np.array([embed(text) for text in texts])


def gallery_texts() -> tuple[list[str], list[str]]:
    """The texts of a gallery, and their topics."""
    topics = [name for name in TOPICS for _ in range(N_TEXTS)]
    return [f"{name} {i}" for name in TOPICS for i in range(N_TEXTS)], topics
