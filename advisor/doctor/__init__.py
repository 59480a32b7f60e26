"""What a source lacks: ``skuwise doctor SOURCE``, with the line that adds it."""
