"""Where the next designs of a study come from: samplers, models of objectives, fronts and when to stop."""
