"""The classifiers that are bundled with attentest, and their training."""
