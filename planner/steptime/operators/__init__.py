"""Times of single operators: formulas of hardware peaks with constants fitted to measured kernels."""
