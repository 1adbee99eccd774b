"""Policies, routers and autoscalers: the types, the built-in ones, and those in a user's file."""
