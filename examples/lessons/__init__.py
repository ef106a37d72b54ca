"""Lessons: operators with learned parameters, trained on handwritten digits in PyTorch, TensorFlow and JAX."""
