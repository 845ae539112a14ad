"""Pages and pictures in one style."""
