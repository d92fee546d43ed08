"""Whether a test is calibrated: how often it rejects images in which there is nothing to find."""
