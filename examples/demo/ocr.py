"""Reading a rendered line of text with PP-OCRv4's recognition network."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import onnx
from PIL import Image, ImageDraw, ImageFont


def model_path() -> Path:
    """Return the recognition model that rapidocr-onnxruntime brings."""
    spec = importlib.util.find_spec("rapidocr_onnxruntime")
    if spec is None or spec.origin is None:
        raise SystemExit("the model is missing: pip install --no-deps rapidocr-onnxruntime")
    return Path(spec.origin).parent / "models" / "ch_PP-OCRv4_rec_infer.onnx"


def render(text: str) -> Image.Image:
    """Draw one line of dark text on a light ground, 48 pixels high."""
    font = ImageFont.load_default(size=30)
    left, top, right, bottom = font.getbbox(text)
    image = Image.new("RGB", (right - left + 24, 48), (236, 234, 228))
    ImageDraw.Draw(image).text((12 - left, (48 - bottom + top) // 2 - top), text, fill=(28, 30, 36), font=font)
    return image


def to_input(image: Image.Image) -> np.ndarray:
    """Scale to height 48, BGR, -1..1, planar: float32 [1, 3, 48, W]."""
    width = max(320, round(image.width * 48 / image.height))
    scaled = image.resize((round(image.width * 48 / image.height), 48), Image.Resampling.BILINEAR)
    pixels = np.asarray(scaled, np.float32)[:, :, ::-1] / 127.5 - 1.0
    padded = np.zeros((48, width, 3), np.float32)
    padded[:, : pixels.shape[1]] = pixels
    return np.ascontiguousarray(padded.transpose(2, 0, 1)[None])


def decode(probabilities: np.ndarray, model: Path) -> str:
    """CTC: the best class of each step, repeats merged, blanks dropped. The characters stand in the metadata."""
    metadata = {item.key: item.value for item in onnx.load(str(model)).metadata_props}
    characters = ["", *metadata["character"].split("\n"), " "]
    best = probabilities[0].argmax(-1)
    kept = [int(k) for position, k in enumerate(best) if k and (position == 0 or k != best[position - 1])]
    # The network may see a space in the margin before and after the line.
    return "".join(characters[k] for k in kept if k < len(characters)).strip()
