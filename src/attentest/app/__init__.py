"""The web page: an image and a model in, picture, p-value and interval out, on this machine alone."""
