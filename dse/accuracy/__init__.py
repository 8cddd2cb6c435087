"""Answers beside what was measured or published: validation, residuals by kind, calibration."""
