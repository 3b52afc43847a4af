"""The pure heart: events in, decision out. No driver, no I/O, no wall clock."""
