"""Files: written whole or not at all; tables and numbers checked when read."""
