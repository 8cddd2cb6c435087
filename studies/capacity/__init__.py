"""Study: requests that a chip serves within its SLO, quick answers against a search of everything."""
