"""Whether the confidence stays true on damaged and attacked queries, gallery and T left alone."""
