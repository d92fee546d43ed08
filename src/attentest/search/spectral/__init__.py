"""The spectral search: piecewise Chebyshev interpolation of the scores with an error bar on p."""
