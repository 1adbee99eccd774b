"""What a user sets: every option in one declaration, engines' defaults and limits, and objectives."""
