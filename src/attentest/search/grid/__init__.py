"""The grid searches of the paper (section 3 and appendix C.1)."""
