"""Channels that are kept after pruning, taken out of images and weights by a differentiable operator."""
