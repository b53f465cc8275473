"""The command `keras-addnorm`."""
