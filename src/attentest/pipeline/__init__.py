"""From images to results in one pass."""
