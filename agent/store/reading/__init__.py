"""Reading node databases that anybody may have written, within bounds."""
