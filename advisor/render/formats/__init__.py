"""One module a format of ``skuwise advise``: its name is the format's, its ``FORMAT`` says how it is written."""
