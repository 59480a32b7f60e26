"""Pages of advice have letters."""

import matplotlib.font_manager  # noqa: F401 - it asks a program for fonts when it is loaded, which no test may
