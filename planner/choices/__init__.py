"""What can be chosen by name: policies, routers and autoscalers, ours or from a user's file."""
