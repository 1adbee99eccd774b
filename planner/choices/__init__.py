"""Choices by name: policies, routers and autoscalers, built in or from a user's file."""
