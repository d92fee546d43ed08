"""Whether reference images agree with a noise model: one test for each assumption, with one error rate for all."""
