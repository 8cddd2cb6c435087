"""Explanations of designs and fronts: time shares, elasticities, shadow prices, neighbours, remedies."""
