"""Training of the classifiers that ship with attentest, and the classifiers themselves."""
