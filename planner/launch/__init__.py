"""Launch commands of engines: read into a scenario, and written from one."""

from planner.launch.read_command import Launch, launch_options, read_launch
from planner.launch.write_command import describe_launch, launch_command

__all__ = ["Launch", "describe_launch", "launch_command", "launch_options", "read_launch"]
