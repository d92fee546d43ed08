"""Words, tables, figures, HTML and reports of results, all read from their records."""

USUAL_CARDS, MOST_CARDS = 200, 100_000
"""Results that a report describes in detail unless told otherwise, and the most, against typing errors."""
