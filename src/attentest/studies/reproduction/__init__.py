"""The paper's numerical experiments: what they are, how they are run, and what came out."""
