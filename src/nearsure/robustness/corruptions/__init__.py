"""One function a corruption: image, generator and the constants of a severity in, image out.

The functions trust their arguments; `nearsure.robustness.corrupt` checks them. Needs the extra
`robust`.
"""

from collections.abc import Callable, Mapping

from nearsure.robustness.corruptions.blur import defocus_blur, zoom_blur
from nearsure.robustness.corruptions.digital import (
    brightness,
    contrast,
    jpeg_compression,
    pixelate,
)
from nearsure.robustness.corruptions.elastic import elastic_transform
from nearsure.robustness.corruptions.glass import glass_blur
from nearsure.robustness.corruptions.motion import motion_blur
from nearsure.robustness.corruptions.noise import gaussian_noise, impulse_noise, shot_noise
from nearsure.robustness.corruptions.weather import fog, frost, snow
from nearsure.robustness.image_checks import Pixels

FUNCTIONS: Mapping[str, Callable[..., Pixels]] = {
    function.__name__: function
    for function in (
        gaussian_noise,
        shot_noise,
        impulse_noise,
        defocus_blur,
        glass_blur,
        motion_blur,
        zoom_blur,
        snow,
        frost,
        fog,
        brightness,
        contrast,
        elastic_transform,
        pixelate,
        jpeg_compression,
    )
}
