"""Times of single operators: formulas of the hardware's peaks with a few constants fitted to measured kernels."""
