"""Heads: what a class as a whole looks like, beside what a query's neighbours say."""
