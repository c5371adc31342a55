"""Texts to vectors as a step of a scikit-learn pipeline: `make_pipeline(TercetVectorizer(), LogisticRegression())`."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tercet.encoder.choice import Model, load_encoder
from tercet.encoder.model.arrays import Vectors
from tercet.storage.choices import DEFAULT_MODEL
from tercet.storage.extras import require

require("sklearn", "sklearn")
from sklearn.base import BaseEstimator, TransformerMixin  # noqa: E402
from sklearn.utils.validation import check_is_fitted  # noqa: E402

if TYPE_CHECKING:
    from tercet.encoder.encoder import Encoder


class TercetVectorizer(TransformerMixin, BaseEstimator):
    """Embeds texts. Fitting only loads the encoder: nothing is learned from the texts.

    Args:
        model: An encoder by its name, its settings, or an Encoder, which clones share.
        precision: See `Encoder.embed`.
        dims: Keep only the first numbers of each vector.
        normalize: Whether vectors have length 1; as the model has it where None.
        device: Where an encoder runs that is loaded by its name.
    """

    def __init__(
        self,
        model: Model = DEFAULT_MODEL,
        *,
        precision: str = "exact",
        dims: int | None = None,
        normalize: bool | None = None,
        device: str | None = None,
    ) -> None:
        self.model = model
        self.precision = precision
        self.dims = dims
        self.normalize = normalize
        self.device = device

    def fit(self, texts: Iterable[str] | None = None, y: object = None) -> "TercetVectorizer":
        """Load the encoder; the texts are not looked at."""
        del texts, y
        self.encoder_: Encoder = load_encoder(self.model)
        if self.device is not None:
            self.encoder_.to(self.device)
        return self

    def transform(self, texts: Iterable[str]) -> Vectors:
        """Return the vectors of texts: float32 [n, d]."""
        check_is_fitted(self)
        return self.encoder_.embed(texts, precision=self.precision, dims=self.dims, normalize=self.normalize)

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """Return a name for each number of a vector, for `set_output`."""
        del input_features
        check_is_fitted(self)
        return np.array([f"tercet{i}" for i in range(self.dims or self.encoder_.dim)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False, True
        tags.requires_fit = True
        return tags
