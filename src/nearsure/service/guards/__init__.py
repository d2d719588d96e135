"""Who may ask, how much at once, and what is counted; each a layer around the routes."""
