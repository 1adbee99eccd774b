"""A user's settings: every option in one declaration, engines' defaults and limits, and objectives."""
