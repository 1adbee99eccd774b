"""Memory of the loop: records of the engine, its requests, the fleet, and the terms of a step."""
