"""Traffic: cut, scaled, described, and sent as a client or as tenants send it."""
