"""How the demo model answers: fixed rules over the prompt it receives, the same every time.

No rule knows the demo's tools. They read names, descriptions and schemas of whatever is offered,
and the words of the instructions, of the person and of the results.
"""
