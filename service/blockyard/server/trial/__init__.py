"""A cluster on one machine, for trying it out and for tests: what the extra ``trial`` installs."""
