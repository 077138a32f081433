"""The towers of scripts/golden/vision.py, one module for each family."""
