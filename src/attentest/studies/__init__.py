"""Studies that use attentest: the paper's experiments, its brain study and a benchmark.

Only the command line imports them.
"""
