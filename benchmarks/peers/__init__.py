"""Other engines, measured in the same session on the same server. Their code and SQL stay outside of this project."""
