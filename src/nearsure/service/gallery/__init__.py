"""The gallery that is served: the fit that answers, what is kept of it, and what it is asked."""
