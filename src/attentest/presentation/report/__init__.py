"""The report of a batch: one HTML file that needs no other, or the same as JSON."""

USUAL_CARDS = 200
"""Most results that a report describes in detail, unless told otherwise."""

MOST_CARDS = 100_000
"""Upper limit on that number, against typing errors."""
