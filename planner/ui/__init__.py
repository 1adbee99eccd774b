"""The dashboard: pages read widgets, call the library and show the results."""
