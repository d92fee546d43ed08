"""From raw scores to the attention map and its region, by one of two rules, of pixels or of whole patches."""
