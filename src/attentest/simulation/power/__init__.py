"""What a test would find: its power on simulated images, before there are data."""
