"""The dashboard: pages that read widgets, call the library and show what it says; no arithmetic of their own."""
