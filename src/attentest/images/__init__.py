"""Reading images and bringing them into the form a model takes."""
