"""The strengths that were published with the fifteen corruptions.

The constants are those of Hendrycks and Dietterich [1]_, as set in the programs that made
CIFAR-10-C (32 pixels), Tiny-ImageNet-C (64) and ImageNet-C (224) [2]_, with one exception:
`elastic_transform` at 224 pixels takes the constants of Michaelis et al. [3]_. The original ones
shift the whole image by up to a fifth of its side at severity 2 and hardly bend it, so that
severity 2 does more damage than severity 5.

The displacement of `elastic_transform` is noise of one draw a pixel, smoothed over a fraction of
the side. Averaged over s pixels a side, noise shrinks by s, so an amplitude that is a fixed
fraction of the side moves every image by the same number of pixels, over a distance that shrinks
with the image: 160 pixels would be torn where 224 are bent. So the amplitude, as a fraction, goes
in proportion to the side, and the displacement is the same fraction of the side at every size.

References
----------
.. [1] D. Hendrycks, T. Dietterich: Benchmarking Neural Network Robustness to Common Corruptions
   and Perturbations. ICLR 2019.
.. [2] https://github.com/hendrycks/robustness: make_cifar_c.py, make_tinyimagenet_c.py and
   make_imagenet_c.py in ImageNet-C/create_c.
.. [3] C. Michaelis et al.: Benchmarking Robustness in Object Detection: Autonomous Driving when
   Winter is Coming. 2019. Their package is `imagecorruptions`.
"""

from dataclasses import dataclass, field

Row = tuple[float, ...]
FiveRows = tuple[Row, Row, Row, Row, Row]

PUBLISHED_SIZES = (32, 64, 224)


@dataclass(frozen=True)
class PublishedConstants:
    """What one corruption is called with: a row of constants for each severity.

    Parameters
    ----------
    names : tuple of str
        Name of each column.
    at_32, at_64, at_224 : five tuples of float
        Rows for severity 1 to 5.
    integers : frozenset of str
        Columns that count something: interpolated values are rounded.
    interpolated : bool
        Whether values between those of two sizes mean anything.
    proportional : frozenset of str
        Columns that go in proportion to the size where they are not interpolated.
    """

    names: tuple[str, ...]
    at_32: FiveRows
    at_64: FiveRows
    at_224: FiveRows
    integers: frozenset[str] = field(default_factory=frozenset)
    interpolated: bool = True
    proportional: frozenset[str] = field(default_factory=frozenset)


PUBLISHED: dict[str, PublishedConstants] = {
    # Standard deviation, as a fraction of the range of grey levels.
    "gaussian_noise": PublishedConstants(
        ("deviation",),
        ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,)),
        ((0.04,), (0.08,), (0.12,), (0.15,), (0.18,)),
        ((0.08,), (0.12,), (0.18,), (0.26,), (0.38,)),
    ),
    # Photons that a white pixel sends.
    "shot_noise": PublishedConstants(
        ("photons",),
        ((500,), (250,), (100,), (75,), (50,)),
        ((250,), (100,), (50,), (30,), (15,)),
        ((60,), (25,), (12,), (5,), (3,)),
        frozenset({"photons"}),
    ),
    # Fraction of the values that become black or white.
    "impulse_noise": PublishedConstants(
        ("amount",),
        ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)),
        ((0.01,), (0.02,), (0.05,), (0.08,), (0.14,)),
        ((0.03,), (0.06,), (0.09,), (0.17,), (0.27,)),
    ),
    # Radius of the disk in pixels, and standard deviation that softens its rim.
    "defocus_blur": PublishedConstants(
        ("radius", "softness"),
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        ((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
        ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    ),
    # Standard deviation of the blur, farthest step of a pixel, number of shuffles.
    "glass_blur": PublishedConstants(
        ("sigma", "reach", "passes"),
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        ((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
        ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        frozenset({"reach", "passes"}),
    ),
    # Half the number of steps of the movement, and standard deviation along it in pixels.
    "motion_blur": PublishedConstants(
        ("radius", "sigma"),
        ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        ((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
        ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        frozenset({"radius"}),
    ),
    # Largest magnification, and number of magnifications from 1 up to it.
    "zoom_blur": PublishedConstants(
        ("largest", "layers"),
        ((1.06, 7), (1.11, 12), (1.15, 16), (1.20, 21), (1.25, 26)),
        ((1.06, 7), (1.11, 12), (1.15, 16), (1.20, 21), (1.25, 26)),
        ((1.11, 12), (1.15, 16), (1.20, 11), (1.24, 13), (1.30, 11)),
        frozenset({"layers"}),
    ),
    # Mean and standard deviation of the flakes' noise, its magnification, the least value that is
    # snow, radius and standard deviation of the fall, and weight of the image against its
    # whitened copy.
    "snow": PublishedConstants(
        ("mean", "deviation", "zoom", "threshold", "radius", "sigma", "image_weight"),
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.8),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.8),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.7),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.65),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.6),
        ),
        (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
        frozenset({"radius"}),
    ),
    # Weights of the image and of the frost, and scale of the frost.
    "frost": PublishedConstants(
        ("image_weight", "frost_weight", "scale"),
        ((1, 0.2, 0.2), (1, 0.3, 0.2), (0.9, 0.4, 0.2), (0.85, 0.4, 0.2), (0.75, 0.45, 0.2)),
        ((1, 0.3, 0.3), (0.9, 0.4, 0.3), (0.8, 0.45, 0.3), (0.75, 0.5, 0.3), (0.7, 0.55, 0.3)),
        ((1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)),
    ),
    # Weight of the fog, and how much less each finer detail of it weighs.
    "fog": PublishedConstants(
        ("weight", "decay"),
        ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        ((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
        ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    ),
    # What is added to the value of hue, saturation and value.
    "brightness": PublishedConstants(
        ("lift",),
        ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),
        ((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),
        ((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),
    ),
    # What the distance from the mean is multiplied with.
    "contrast": PublishedConstants(
        ("factor",),
        ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),
        ((0.4,), (0.3,), (0.2,), (0.1,), (0.05,)),
        ((0.4,), (0.3,), (0.2,), (0.1,), (0.05,)),
    ),
    # Amplitude and smoothness of the displacement and shift of the corners, all as fractions of
    # the smaller side.
    "elastic_transform": PublishedConstants(
        ("amplitude", "smoothness", "shift"),
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        ((0, 0, 0.08), (0.05, 0.3, 0.06), (0.1, 0.08, 0.06), (0.1, 0.03, 0.03), (0.16, 0.03, 0.02)),
        (
            (0.0625, 0.01, 0),
            (0.08125, 0.01, 0),
            (0.10625, 0.01, 0),
            (0.125, 0.01, 0),
            (0.15, 0.01, 0),
        ),
        # Small images are mostly shifted, large ones bent: half of each would be strongest where
        # it should be mildest.
        interpolated=False,
        proportional=frozenset({"amplitude"}),
    ),
    # Size of the coarse image, as a fraction.
    "pixelate": PublishedConstants(
        ("fraction",),
        ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),
        ((0.9,), (0.8,), (0.7,), (0.6,), (0.5,)),
        ((0.6,), (0.5,), (0.4,), (0.3,), (0.25,)),
    ),
    # Quality of the JPEG file.
    "jpeg_compression": PublishedConstants(
        ("quality",),
        ((80,), (65,), (58,), (50,), (40,)),
        ((65,), (58,), (50,), (40,), (25,)),
        ((25,), (18,), (15,), (10,), (7,)),
        frozenset({"quality"}),
    ),
}
