"""Results against measured and published figures: validation, residuals by kind, calibration, claims."""
