"""The server: vectors over HTTP, as OpenAI's clients ask for them, and its page."""
