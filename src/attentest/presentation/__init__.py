"""Words, tables, figures, HTML and reports of results, all read from their records."""
