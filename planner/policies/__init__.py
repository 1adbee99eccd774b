"""Policies, routers and autoscalers: the types, the built-in ones, and the ones of a user's file."""
