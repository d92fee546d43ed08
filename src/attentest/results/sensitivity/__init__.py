"""How a result depends on the noise that was assumed."""
