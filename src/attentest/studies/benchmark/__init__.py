"""The benchmark: what attentest costs, as ratios within one run, and as counts of model evaluations."""
