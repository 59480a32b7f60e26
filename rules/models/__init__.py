"""Parameters of fitted models, as shipped."""
