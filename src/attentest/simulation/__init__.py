"""Synthetic images, and the behaviour of a test on them."""
