"""The law of a statistic given that it fell into a truncation set: p-values, estimates and intervals."""
