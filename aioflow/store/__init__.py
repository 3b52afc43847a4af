"""The store: the only room that knows SQL and the driver."""
