"""An engine's launch command: read into a scenario, and written from one."""

from planner.launch.read import Launch, launch_options, read_launch
from planner.launch.write import describe_launch, launch_command

__all__ = ["Launch", "describe_launch", "launch_command", "launch_options", "read_launch"]
