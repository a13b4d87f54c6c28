"""The network: a semantic feature pyramid over a residual backbone, made of plain PyTorch modules.

Panoptic Feature Pyramid Networks (Kirillov et al., 2019), the semantic branch: a backbone gives maps at strides 4, 8,
16 and 32; 1x1 convolutions bring them to one width and a top-down path adds each coarser map, upsampled, to the finer
one; every level is brought to stride 4 by stages of 3x3 convolution, normalisation, ReLU and 2x bilinear upsampling;
the levels are summed, classified by a 1x1 convolution and upsampled 4x. Two departures: BatchNorm where the paper has
GroupNorm, because an exporter folds it into the convolution, and narrow maps (the paper's 256 and 128 channels are
`2 * width` and `width` here).

Classes are made inside functions: importing this module must not import PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from workbook.errors import ModelError, SettingError
from workbook.models.quiet import quiet_libraries

if TYPE_CHECKING:
    from torch import Tensor, nn

STRIDES = (4, 8, 16, 32)
DEFAULT_WIDTH = 24
BACKBONES = '"residual", "hub:ORG/NAME" or "path:DIR"'
# Channel means and deviations of ImageNet, for images in 0..1: what every hub backbone was trained with.
IMAGE_MEAN, IMAGE_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DARKEST_DEVIATION = 0.02  # added to an image's own deviation, so that the noise of a black image is not blown up


def build_network(width: int = DEFAULT_WIDTH, backbone: str = "residual", *, pretrained: bool = True) -> nn.Module:
    """A semantic FPN with two classes, weights of its own part random.

    Maps float images `batch 3 height width` in 0..1, height and width multiples of 32, to logits
    `batch 2 height width` in the type of the weights. Images are normalised in float32 before: by their own mean and
    deviation per channel for the residual backbone (day and night look alike then: +1.3 points of IoU in a trial of
    450 steps), by ImageNet's for one from the hub.

    Args:
        width: channels of the finest map, 8..256; every other width follows from it.
        backbone: `residual` (four stages of one residual block), `hub:ORG/NAME` or `path:DIR` (an image backbone
            that transformers knows, such as hub:microsoft/resnet-18).
        pretrained: take the weights of a hub backbone too; without them only its configuration is read.

    Raises:
        SettingError: `width` is out of bounds or `backbone` names no known source.
        ModelError: the hub backbone cannot be read, or has no maps at strides 4, 8, 16 and 32.
    """
    if not 8 <= width <= 256:
        raise SettingError(f"width={width} is outside 8..256, the channels of the finest map")
    kind, _, place = backbone.partition(":")
    if backbone == "residual":
        module, channels = _residual_backbone(width)
    elif kind in ("hub", "path") and place:
        module, channels = _hub_backbone(place, kind == "path", pretrained)
    else:
        raise SettingError(f"backbone={backbone!r} names no source: use {BACKBONES}")
    normalise = _standardise if backbone == "residual" else _imagenet_normaliser()
    return _semantic_fpn(normalise, module, channels, pyramid=2 * width, head=width)


def _normalised(inputs: int, outputs: int, *, size: int = 3, stride: int = 1, relu: bool = True) -> nn.Sequential:
    """Convolution, BatchNorm, ReLU."""
    from torch import nn

    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, nn.ReLU()) if relu else nn.Sequential(*layers)


def _residual_block(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Two 3x3 convolutions beside a 1x1 shortcut (He et al., 2016)."""
    from torch import nn
    from torch.nn.functional import relu

    class ResidualBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = _normalised(inputs, outputs, stride=stride)
            self.second = _normalised(outputs, outputs, relu=False)
            same = inputs == outputs and stride == 1
            self.shortcut = nn.Identity() if same else _normalised(inputs, outputs, size=1, stride=stride, relu=False)

        def forward(self, maps: Tensor) -> Tensor:
            return relu(self.second(self.first(maps)) + self.shortcut(maps))

    return ResidualBlock()


def _residual_backbone(width: int) -> tuple[nn.Module, tuple[int, ...]]:
    """A small backbone: a stem to stride 4, then one block a stage with 1, 2, 3 and 4 times `width` channels."""
    from torch import nn

    channels = tuple(width * times for times in (1, 2, 3, 4))

    class ResidualBackbone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(_normalised(3, width // 2, stride=2), _normalised(width // 2, width, stride=2))
            befores = (width, *channels[:-1])
            blocks = [_residual_block(befores[i], channels[i], stride=1 if i == 0 else 2) for i in range(4)]
            self.stages = nn.ModuleList(blocks)

        def forward(self, images: Tensor) -> tuple[Tensor, ...]:
            maps, levels = self.stem(images), []
            for stage in self.stages:
                maps = stage(maps)
                levels.append(maps)
            return tuple(levels)

    return ResidualBackbone(), channels


def _hub_backbone(place: str, local: bool, pretrained: bool) -> tuple[nn.Module, tuple[int, ...]]:
    """An image backbone through transformers, wrapped to return its four maps."""
    from torch import nn

    backbone = _read_backbone(place, local, pretrained)
    channels = tuple(int(count) for count in backbone.channels)
    if len(channels) != len(STRIDES):
        raise ModelError(f"{place} gives {len(channels)} maps; a pyramid needs four, at strides 4, 8, 16 and 32")

    class HubBackbone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = backbone

        def forward(self, images: Tensor) -> tuple[Tensor, ...]:
            return tuple(self.backbone(images).feature_maps)

    wrapped = HubBackbone()
    _refuse_other_strides(place, wrapped)
    return wrapped, channels


def _read_backbone(place: str, local: bool, pretrained: bool) -> Any:
    import transformers

    backbones: Any = transformers.AutoBackbone  # its methods carry no annotations
    maps = [f"stage{number}" for number in (1, 2, 3, 4)]
    try:
        config = transformers.AutoConfig.from_pretrained(place, out_features=maps, local_files_only=local)
        backbone = backbones.from_config(config)
        if not pretrained:
            return backbone
        # Not AutoBackbone.from_pretrained: that one asks the hub even about a folder or a cached model.
        options = {"config": config, "local_files_only": local, "output_loading_info": True}
        with quiet_libraries():  # a list of the classifier's weights that are not used
            backbone, loading = type(backbone).from_pretrained(place, **options)
    except Exception as error:  # no network, no such id, no backbone of that type: all mean "take another"
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ModelError(
            f"cannot read the backbone {place!r} ({reason}).\n"
            'With no hub, use model = "trained", the checkpoint bundled with the workbook, or a backbone "path:DIR" '
            "that save_pretrained wrote."
        ) from error
    if loading["missing_keys"]:
        raise ModelError(f"the weights of {place!r} lack tensors, such as {sorted(loading['missing_keys'])[0]}")
    return backbone


def _refuse_other_strides(place: str, backbone: nn.Module) -> None:
    import torch

    training = backbone.training
    with torch.inference_mode():
        levels = backbone.eval()(torch.zeros(1, 3, 64, 64))
    backbone.train(training)
    strides = tuple(64 // level.shape[-1] for level in levels)
    if strides != STRIDES:
        raise ModelError(f"{place} gives maps at strides {strides}; a pyramid needs {STRIDES}")


def _standardise(images: Tensor) -> Tensor:
    """Each channel of each image to mean 0 and deviation 1."""
    centred = images - images.mean(dim=(2, 3), keepdim=True)
    return centred / ((centred * centred).mean(dim=(2, 3), keepdim=True).sqrt() + DARKEST_DEVIATION)


def _imagenet_normaliser() -> nn.Module:
    """Each channel by ImageNet's mean and deviation."""
    import torch
    from torch import nn

    class ImagenetNormaliser(nn.Module):
        mean: Tensor
        deviation: Tensor

        def __init__(self) -> None:
            super().__init__()  # buffers, so that they follow the network to another device
            self.register_buffer("mean", torch.tensor(IMAGE_MEAN).view(1, 3, 1, 1), persistent=False)
            self.register_buffer("deviation", torch.tensor(IMAGE_DEVIATION).view(1, 3, 1, 1), persistent=False)

        def forward(self, images: Tensor) -> Tensor:
            return (images - self.mean) / self.deviation

    return ImagenetNormaliser()


def _semantic_fpn(
    normalise: Callable[[Tensor], Tensor], backbone: nn.Module, channels: Sequence[int], pyramid: int, head: int
) -> nn.Module:
    from torch import nn
    from torch.nn.functional import interpolate

    class SemanticFpn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.normalise = normalise
            self.backbone = backbone
            self.lateral = nn.ModuleList(nn.Conv2d(count, pyramid, 1) for count in channels)
            self.smooth = nn.ModuleList(nn.Conv2d(pyramid, pyramid, 3, padding=1) for _ in channels)
            self.head = nn.ModuleList(_head_level(pyramid, head, upsamplings) for upsamplings in range(len(channels)))
            self.classify = nn.Conv2d(head, 2, 1)

        def forward(self, images: Tensor) -> Tensor:
            # In float32 whatever the weights are: a sum over an image's pixels leaves the range of float16.
            levels = self.backbone(self.normalise(images.float()).to(self.classify.weight.dtype))
            above: Tensor | None = None
            summed: Tensor | None = None
            for level in reversed(range(len(self.lateral))):
                maps = self.lateral[level](levels[level])
                if above is not None:
                    maps = maps + interpolate(above, scale_factor=2.0, mode="nearest")
                above = maps
                part = self.head[level](self.smooth[level](maps))
                summed = part if summed is None else summed + part
            logits: Tensor = interpolate(self.classify(summed), scale_factor=4.0, mode="bilinear")
            return logits

    return SemanticFpn()


def _head_level(pyramid: int, head: int, upsamplings: int) -> nn.Sequential:
    """From a level of the pyramid to stride 4: as many stages of convolution and 2x upsampling as it takes."""
    from torch import nn

    layers: list[nn.Module] = []
    for stage in range(max(1, upsamplings)):
        layers.append(_normalised(pyramid if stage == 0 else head, head))
        if upsamplings:
            layers.append(nn.Upsample(scale_factor=2.0, mode="bilinear"))
    return nn.Sequential(*layers)
