"""Runs over many tasks: records on disk, engines, failures and versions."""
