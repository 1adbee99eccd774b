"""How the tests run: Hypothesis without deadlines (the first example may compile), and the same examples every time.

HYPOTHESIS_PROFILE=explore draws new and more examples, for looking for bugs.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("fixed", max_examples=60, deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, database=None, max_examples=2000, print_blob=True,
                          suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
