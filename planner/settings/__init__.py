"""User settings: every option declared once, engine defaults, and objectives."""
