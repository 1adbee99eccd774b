"""Traffic: cut, scaled, described, and sent as clients or tenants send it."""
