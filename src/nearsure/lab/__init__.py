"""The paper's experiment, from images to tables."""
