"""Why a design is as it is or is not on a front: shares of time, elasticities, shadow prices, what would do."""
