"""The agents list and the agent page: write a definition, publish it, contain it."""
