"""Reading images, and preparing them for a model."""
