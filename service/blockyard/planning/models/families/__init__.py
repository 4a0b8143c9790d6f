"""One module a family of architectures: which caches its layers have, read from its own fields."""
