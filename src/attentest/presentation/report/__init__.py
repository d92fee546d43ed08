"""The report of a batch: one HTML file that needs no other, or the same as JSON."""
