"""The ways to give traffic another rate, in words, and the one that is recommended."""

MEANINGS = {
    "thin": "more users of the same kind",
    "compress": "the same users in a hurry",
    "resample": "requests and gaps drawn anew",
    "poisson": "arrivals drawn as a Poisson process",
}
RECOMMENDED = "thin"  # the default of `capacity` and `size`: a load grows with its users
