"""Convolution of one pixel in the layout of a device: channels last, filled up to sixteen, as one atomic operator."""
