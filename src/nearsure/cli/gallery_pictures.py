"""Pictures of a file of embeddings as thumbnails in an .sqlite gallery."""

import base64

from nearsure.arrays import AnyArray
from nearsure.cli.image_paths import ImagePaths
from nearsure.cli.saying import tell
from nearsure.embedding_files import EmbeddingChunk
from nearsure.engines.sqlite import SqliteEngine
from nearsure.report.thumbnails import Thumbnails


class PictureLoader:
    """Makes thumbnails and keeps them beside their points.

    Parameters
    ----------
    engine : SqliteEngine
        The gallery.
    images : ImagePaths
        Where pictures are.
    """

    def __init__(self, engine: SqliteEngine, images: ImagePaths) -> None:
        self._engine, self._images = engine, images
        self._thumbnails = Thumbnails()

    def put(self, names: AnyArray, chunk: EmbeddingChunk) -> None:
        """Keep the pictures of the points that have one.

        Parameters
        ----------
        names : array of shape (m,)
            Ids of the points, which are in the gallery already.
        chunk : EmbeddingChunk
            Their rows.
        """
        small = {}
        for name, picture in zip(names.tolist(), chunk.pictures or (), strict=False):
            address = self._thumbnails.of(self._images.of(picture))
            if address is not None:
                small[name] = base64.b64decode(address.partition(",")[2])
        if small:
            self._engine.put_pictures(small)

    def tell(self) -> None:
        """Say which pictures could not be read."""
        self._images.tell()
        note = self._thumbnails.note()
        if note is not None:
            tell(note)
